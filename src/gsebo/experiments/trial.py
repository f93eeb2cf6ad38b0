"""One fit that is to be made, and what makes two of them the same."""

import hashlib
import json
import warnings
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data import (
    DATASETS,
    apply_noise,
    apply_split,
    load,
    noise_in_words,
    visible_part,
)
from gsebo.data.splits import has_unseen, is_drawn
from gsebo.errors import InputWarning
from gsebo.lookup import lookup
from gsebo.methods import GraphClassifier
from gsebo.schema import Key, Name, Record, Seed, Value


def fitted_graph(data: Data) -> Data:
    """The part of a graph that a fit may see: all of it, unless there is a mask."""
    return visible_part(data) if has_unseen(data) else data


def predicted_classes(model: GraphClassifier, data: Data) -> Tensor:
    """Class of every node of the whole graph, ``[nodes]``.

    Args:
        model: Fitted on :func:`fitted_graph`.
        data: The whole graph.
    """
    if not has_unseen(data):
        return model.transduction_
    with warnings.catch_warnings():
        # That new edges get the vanilla weight is what is measured here.
        warnings.simplefilter("ignore", InputWarning)
        return model.predict(data)


def visible_noise(data: Data, noise: int) -> int:
    """How many of the false edges the fit saw.

    Args:
        data: The whole graph.
        noise: How many false edges were added, in both directions, at its end.
    """
    if not has_unseen(data):
        return noise
    false = data.edge_index[:, data.num_edges - 2 * noise :]
    return int((~data.unseen_mask[false]).all(0).sum()) // 2


class Trial(Record, frozen=True, dict=True):
    """Everything that the outcome of a fit depends on.

    Where it runs is not part of it: a fit on another device is the same to rounding.

    Attributes:
        method: Name of the method.
        backbone: Name of the network.
        dataset: Name of the graph.
        split: Name of the split.
        seed: Of the weights, of the noise, and of a split that is drawn.
        noise: Number of false edges that are added, or ``KIND:LEVEL`` of other noise.
        parameters: What differs from the constructor's defaults.
        curves: Whether every step is recorded, with its test accuracy.
    """

    method: Name
    backbone: Name
    dataset: Name
    split: Name
    seed: Seed
    noise: Annotated[int, Meta(ge=0, le=10**15)] | Name = 0
    parameters: dict[Key, Value] = msgspec.field(default_factory=dict)
    curves: bool = False

    @cached_property
    def key(self) -> str:
        """Short name that no other trial has."""
        text = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    @cached_property
    def without_seed(self) -> str:
        """The same for trials that differ by their seeds alone."""
        return replace(self, seed=0).key

    def to_json(self) -> dict[str, Any]:
        """As plain objects."""
        return asdict(self)

    def __str__(self) -> str:
        words = [self.method, self.backbone, self.dataset, f"seed {self.seed}"]
        if self.noise:
            words.append(noise_in_words(self.noise))
        words += [f"{name}={json.dumps(v)}" for name, v in self.parameters.items()]
        return ", ".join(words)


_HALVES = "halves"
_PARTS = ("unseen", "seen")


def full_split_name(dataset: str, split: str | None) -> str:
    """Name of a split with everything that it depends on spelt out.

    Args:
        dataset: Name of a registered dataset.
        split: ``None`` for the dataset's own, or ``"halves"`` for its own with
            validation halved, or ``"unseen:20"`` or ``"seen:20"`` for a part of its own
            test nodes, or the name of any split.
    """
    own = lookup("dataset", dataset, DATASETS).default_split
    if split is None:
        return own
    kind, _, detail = split.partition(":")
    of_own = split == _HALVES or (kind in _PARTS and ":" not in detail)
    return f"{split}:{own}" if of_own else split


def is_halved(split: str) -> bool:
    """Whether a split leaves the test nodes out."""
    return _HALVES in split.split(":")


def trial_graph(trial: Trial, data_dir: Path | None = None) -> Data:
    """Load the graph, split it, and add noise where the trial has some."""
    data = load(trial.dataset, data_dir=data_dir)
    data = apply_split(data, trial.split, trial.seed)
    if trial.noise:
        data = apply_noise(data, trial.noise, seed=trial.seed)
    return data


def same_graph_for_all_seeds(trial: Trial) -> bool:
    """Whether trials that differ from this by their seeds alone have the same graph."""
    return not trial.noise and not is_drawn(trial.split)
