"""Saved models and checkpoints: any bytes, and content whose checksums are right."""

import json
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from hypothesis import strategies as st
from tests.methods.examples import quick, small_graph
from tests.methods.saved import everything, put_facts, same
from tests.methods.test_persistence_damage import KINDS
from torch import Tensor

from fuzz.damage import array_damage, bytes_damage, tree_damage
from fuzz.target import Draw, Originals, Target, require
from gsebo import Checkpoint, InvalidInput, load_model
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.files import read_tensors, write_tensors
from gsebo.methods import GraphClassifier

_TENSORS, _FACTS = "model.safetensors", "model.json"
_FEW = ("edges", "layers", "choice", "members", "of pyg", "folder")


def write_models(folder: Path, kinds: tuple[str, ...]) -> None:
    """Fit and save models.

    Args:
        folder: Gets a folder for each.
        kinds: Names of kinds of models.
    """
    beside = folder.with_name(f"{folder.name}-graphs")
    for kind in kinds:
        (beside / kind).mkdir(parents=True)
        KINDS[kind](beside / kind).save(folder / kind, dataset="g")


@final
class ModelBytes(Target):
    """Files of a model with any damage: refused, or what is read is the same."""

    name, share = "model-bytes", 2

    def prepare(self, folder: Path) -> None:
        """Save models of several kinds."""
        write_models(folder, _FEW)

    def begin(self, folder: Path) -> None:
        """Load them."""
        self._originals = Originals(folder)
        self._whole = {
            kind: everything(load_model(path))
            for kind, path in self._originals.folders.items()
        }

    def draw(self, draw: Draw) -> Any:
        """Draw a kind, a file and its bytes."""
        kind = draw(st.sampled_from(sorted(self._originals.files)))
        files = self._originals.files[kind]
        file = draw(st.sampled_from(sorted(files)))
        if not draw(st.integers(0, 10)):
            # The file of another model: whole, and not the right one.
            other = draw(st.sampled_from(sorted(self._originals.files)))
            return kind, file, self._originals.files[other].get(file, b"")
        return kind, file, bytes_damage(draw, files[file])

    def write(self, case: Any, place: Path) -> None:
        """Write the model with the one file changed."""
        kind, file, content = case
        (self._originals.copy(kind, place) / file).write_bytes(content)

    def read(self, case: Any, place: Path) -> None:
        """Load the model."""
        found = everything(load_model(place / "copy"))
        require(same(found, self._whole[case[0]]), "what was saved")


@final
class ModelContent(Target):
    """Models that somebody made up, with checksums that fit."""

    name, share = "models", 4

    def prepare(self, folder: Path) -> None:
        """Save models of several kinds."""
        write_models(folder, _FEW)

    def begin(self, folder: Path) -> None:
        """Load them."""
        self._originals = Originals(folder)
        self._facts = {
            kind: json.loads(files[_FACTS])
            for kind, files in self._originals.files.items()
        }
        self._tensors = {
            kind: read_tensors(path / _TENSORS, "a model")
            for kind, path in self._originals.folders.items()
        }
        self._data = small_graph()

    def draw(self, draw: Draw) -> Any:
        """Draw a kind, and a change of what it says or of a tensor."""
        kind = draw(st.sampled_from(sorted(self._facts)))
        changes = draw(st.sampled_from(["facts", "tensor", "both"]))
        facts = name = tensor = None
        if changes != "tensor":
            facts = tree_damage(draw, self._facts[kind])
        if changes != "facts":
            tensors = self._tensors[kind][0]
            name = draw(st.sampled_from(sorted(tensors)))
            tensor = array_damage(draw, tensors[name].numpy())
        return kind, facts, name, tensor

    def write(self, case: Any, place: Path) -> None:
        """Write the model and make its checksums fit."""
        kind, facts, name, tensor = case
        folder = self._originals.copy(kind, place)
        if name is not None:
            tensors, stored = self._tensors[kind]
            write_tensors(
                folder / _TENSORS, {**tensors, name: _as_tensor(tensor)}, stored
            )
        facts = self._facts[kind] if facts is None else facts
        try:
            put_facts(folder, facts)
        except (AttributeError, TypeError, ValueError, RecursionError):
            # What cannot be sealed is written as it is.
            (folder / _FACTS).write_text(repr(facts), "utf-8", "replace")

    def read(self, case: Any, place: Path) -> None:
        """Load the model and predict with it."""
        model = load_model(place / "copy")
        for name, each in everything(model).items():
            if isinstance(each, Tensor) and each.is_floating_point():
                require(not bool(each.isnan().any()), f"numbers in {name}")
        try:
            probability = model.predict_proba(self._data)
        except InvalidInput:
            return  # A model of another graph may say so.
        require(probability.shape[0] == self._data.num_nodes, "a row for each node")
        require(bool(probability.isfinite().all()), "probabilities")


def _as_tensor(array: Any) -> Tensor:
    """An array as what a file of tensors can hold."""
    found = np.ascontiguousarray(array).reshape(np.shape(array))
    if found.dtype.kind not in "fiub" or found.dtype.str[0] == ">":
        return torch.zeros(found.shape, dtype=torch.float16)
    return torch.from_numpy(found.copy())


# --- checkpoints ---------------------------------------------------------------------


@final
class Checkpoints(Target):
    """Checkpoints with any damage, or made up: refused, or the fit ends."""

    name, share = "checkpoints", 2
    may_change = True

    def prepare(self, folder: Path) -> None:
        """Interrupt fits of two kinds."""
        graph = write_folder(small_graph(), folder.with_name("checkpoints-graph"))
        for kind, given in (("memory", small_graph()), ("folder", graph)):
            _interrupted(kind, given, folder / kind)

    def begin(self, folder: Path) -> None:
        """Remember how an undisturbed fit ends."""
        self._originals = Originals(folder)
        graph = folder.with_name("checkpoints-graph")
        self._given = {"memory": small_graph(), "folder": GraphFolder.open(graph)}
        self._whole = {
            kind: _end_of(kind, self._given[kind], None) for kind in self._given
        }

    def draw(self, draw: Draw) -> Any:
        """Draw a kind, a file and its bytes, or what it says or holds instead."""
        kind = draw(st.sampled_from(sorted(self._originals.files)))
        files = self._originals.files[kind]
        file = draw(st.sampled_from(sorted(files)))
        how = draw(st.sampled_from(["bytes", "facts", "tensor"]))
        if how == "bytes" or not file.endswith(".safetensors"):
            return kind, file, "bytes", bytes_damage(draw, files[file])
        tensors, facts = read_tensors(self._originals.folders[kind] / file, "")
        if how == "facts":
            return kind, file, how, tree_damage(draw, facts)
        name = draw(st.sampled_from(sorted(tensors)))
        return kind, file, how, (name, array_damage(draw, tensors[name].numpy()))

    def write(self, case: Any, place: Path) -> None:
        """Write the checkpoint."""
        kind, file, how, content = case
        path = self._originals.copy(kind, place) / file
        if how == "bytes":
            path.write_bytes(content)
            return
        tensors, facts = read_tensors(path, "")
        if how == "facts":
            facts = content
        else:
            tensors[content[0]] = _as_tensor(content[1])
        try:
            write_tensors(path, tensors, facts)
        except (ValueError, RecursionError, TypeError):
            path.write_bytes(repr(facts).encode("utf-8", "replace"))

    def read(self, case: Any, place: Path) -> None:
        """Go on with the fit."""
        kind, _, how, _ = case
        found = _end_of(kind, self._given[kind], place / "copy")
        if how == "bytes":
            require(found == self._whole[kind], "the fit that was begun")


def _estimator(kind: str) -> GraphClassifier:
    if kind == "folder":
        batches = {"batch_size": 8, "device": "cpu"}
        return quick("gsebo", max_outer_steps=3, inner_steps=2, **batches)
    return quick("gsebo", max_outer_steps=3, inner_steps=2)


class _Stop(Exception):
    pass


def _interrupted(kind: str, given: Any, folder: Path) -> None:
    def stop(record: Any, *_: Any) -> None:
        if record.step == 2:
            raise _Stop

    checkpoint = Checkpoint(folder, every_seconds=0.0)
    try:
        _estimator(kind).fit(given, checkpoint=checkpoint, watcher=stop)
    except _Stop:
        return
    raise AssertionError("the fit was not interrupted")


def _end_of(kind: str, given: Any, folder: Path | None) -> Any:
    checkpoint = None if folder is None else Checkpoint(folder, resume=True)
    model = _estimator(kind).fit(given, checkpoint=checkpoint)
    return [(record.step, record.val_loss) for record in model.history_]
