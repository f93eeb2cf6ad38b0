"""A checkpoint of another fit, or a damaged one, is refused in one sentence."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data

from gsebo import Checkpoint, InvalidInput
from gsebo.bilevel import Reverse
from gsebo.files import checksum, read_tensors, write_tensors
from gsebo.structure import EdgeStrength
from gsebo.training.checkpoint import FORMAT, CheckpointFacts

# The folders of tests are packages side by side.
from methods.examples import supported

from .conftest import Folders
from .interrupted import (
    assert_same_run,
    every_method,
    interrupt,
    left_alone,
    make,
    resuming,
    saving,
)


def other_graphs(data: Data) -> dict[str, Data]:
    changed = {key: data.clone() for key in ("x", "dtype", "edges", "y", "masks")}
    changed["x"].x[0, 0] += 1
    changed["dtype"].x = data.x.double()
    changed["edges"].edge_index = data.edge_index[:, 1:]
    known = data.val_mask.nonzero()[0]
    changed["y"].y[known] = 1 - data.y[known]
    changed["masks"].val_mask[known] = False
    return changed


@every_method
def test_another_graph_is_refused(name: str, data: Data, interrupted: Folders) -> None:
    folder = interrupted(name)
    for other in other_graphs(data).values():
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make(name).fit(other, checkpoint=resuming(folder))


@every_method
@pytest.mark.parametrize(
    "changes",
    [{"random_state": 1}, {"inner_lr": 0.03}, {"backbone": "sage"}, {"dropout": 0.4}],
    ids=str,
)
def test_another_fit_is_refused(
    name: str, changes: dict[str, Any], data: Data, interrupted: Folders
) -> None:
    if not supported(name, changes.get("backbone", make(name).backbone)):
        pytest.skip(f"{name} has other networks")
    if name == "retrain" and not {"random_state", "backbone"} & changes.keys():
        pytest.skip("its first training is another method's, without this parameter")
    folder = interrupted(name)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make(name, **changes).fit(data, checkpoint=resuming(folder))


def test_another_method_is_refused(data: Data, interrupted: Folders) -> None:
    folder = interrupted("gsebo")
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("frozen").fit(data, checkpoint=resuming(folder))


def test_another_engine_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", hypergradient=Reverse(horizon=2)), data, tmp_path)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("gsebo", hypergradient=Reverse(horizon=3)).fit(
            data, checkpoint=resuming(tmp_path)
        )


def test_another_structure_given_as_code_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", structure=EdgeStrength()), data, tmp_path)
    for structure in (EdgeStrength(tied=True), EdgeStrength(learn_self_loops=False)):
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make("gsebo", structure=structure).fit(data, checkpoint=resuming(tmp_path))
    resumed = make("gsebo", structure=EdgeStrength()).fit(
        data, checkpoint=resuming(tmp_path)
    )
    assert_same_run(resumed, left_alone("gsebo"))


@every_method
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(
    name: str, share: float, data: Data, interrupted: Folders
) -> None:
    folder = interrupted(name)
    (path,) = folder.glob("checkpoint*")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidInput, match="damaged") as caught:
        make(name).fit(data, checkpoint=resuming(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["step", "history", "best", "weights:weights"])
def test_an_incomplete_checkpoint_is_refused(
    missing: str, data: Data, interrupted: Folders
) -> None:
    folder = interrupted("gsebo")
    path = saving(folder).path
    tensors, facts = read_tensors(path, "a checkpoint")
    tensors.pop(missing, None)
    facts.pop(missing, None)
    write_tensors(path, tensors, facts)
    refused_and_kept(folder, data, r"damaged|does not fit its own description")


def refused_and_kept(folder: Path, data: Data, said: str, name: str = "gsebo") -> None:
    """A checkpoint that cannot be used is left as it is: somebody may want to look."""
    before = contents(folder)
    with pytest.raises(InvalidInput, match=said) as caught:
        make(name).fit(data, checkpoint=resuming(folder))
    assert "\n" not in str(caught.value)
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


Change = Callable[[dict[str, Any], dict[str, Any]], None]


def rewritten(path: Path, change: Change) -> None:
    """Change a checkpoint in a way that no checksum tells."""
    tensors, facts = read_tensors(path, "a checkpoint")
    change(tensors, facts)
    write_tensors(path, tensors, facts)


FACTS: list[Change] = [
    lambda _, facts: facts.update(step=-1),
    lambda _, facts: facts.update(step=10**20),
    lambda _, facts: facts.update(count="3"),
    lambda _, facts: facts.update(outer_count=None),
    lambda _, facts: facts.update(best={}),
    lambda _, facts: facts.update(history={}),
    lambda _, facts: facts["history"][0].update(step=0),
    lambda _, facts: facts["history"][0].update(more=1),
    lambda _, facts: facts.update(order=[]),
    lambda _, facts: facts["order"].update(weights=[]),
    lambda _, facts: facts["order"].update(weights=["weights", "weights"]),
    lambda _, facts: facts["order"].update(outer=["nothing"]),
    lambda _, facts: facts["order"].update(elsewhere=["weights"]),
    lambda _, facts: facts["order"].pop("slots"),
    lambda _, facts: facts.update(tables={}, another=3),
    lambda _, facts: facts.update(tables={"table": {"folder": "..", "columns": {}}}),
    lambda _, facts: facts.update(tables={"table": {"folder": "x", "columns": {}}}),
]


@pytest.mark.parametrize("number", range(len(FACTS)))
def test_facts_that_were_made_up(number: int, data: Data, interrupted: Folders) -> None:
    folder = interrupted("gsebo")
    rewritten(saving(folder).path, FACTS[number])
    refused_and_kept(folder, data, "expected|undamaged")


HARMS: dict[str, Callable[[Tensor], Tensor]] = {
    "nan": lambda t: t * float("nan"),
    "double": lambda t: t.double(),
    "bytes": lambda t: t.to(torch.uint8),
    "shorter": lambda t: t[..., :-1],
    "empty": lambda t: t[:0],
    "number": lambda t: t.sum(),
    "axis": lambda t: t.unsqueeze(0),
}


@pytest.mark.parametrize("harm", list(HARMS))
def test_tensors_that_were_made_up(harm: str, data: Data, interrupted: Folders) -> None:
    folder = interrupted("gsebo")
    path = saving(folder).path
    whole, _ = read_tensors(path, "a checkpoint")
    for name in whole:
        # Slots may be what an optimiser likes, once they are numbers.
        changed = HARMS[harm](whole[name])
        rewritten(path, lambda tensors, _, n=name, t=changed: tensors.update({n: t}))
        refused_and_kept(folder, data, "does not fit its own description")
        rewritten(path, lambda tensors, _: tensors.update(whole))
    rewritten(path, lambda tensors, _: tensors.update(foreign=torch.zeros(2)))
    refused_and_kept(folder, data, "other tensors than it holds")


def test_an_optimiser_may_remember_more(data: Data, interrupted: Folders) -> None:
    """Whatever else a later version keeps there comes back."""

    def more(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        tensors["outer_slots:trust/radius"] = torch.tensor([0.5])
        facts["order"]["outer_slots"].append("trust/radius")

    folder = interrupted("gsebo")
    rewritten(saving(folder).path, more)
    resumed = make("gsebo").fit(data, checkpoint=resuming(folder))
    assert_same_run(resumed, left_alone("gsebo"))


@pytest.mark.parametrize("name", ["warm start", "../up", "a/b", "ä", "table-1", "*"])
def test_stages_have_any_name(name: str, tmp_path: Path) -> None:
    whole = Checkpoint(tmp_path)
    place = whole.stage(name)
    assert place.path.parent == tmp_path
    assert place.path.name != whole.stage(f"{name}2").path.name != whole.path.name
    place.write({}, CheckpointFacts(format=FORMAT, fingerprint="f"))
    assert Checkpoint(tmp_path, resume=True).stage(name).read("f", CheckpointFacts)
    whole.remove()
    assert list(tmp_path.iterdir()) == []


def test_any_flipped_byte_is_refused_or_means_nothing(
    data: Data, tmp_path: Path
) -> None:
    def fit(**options: Any) -> Any:
        return make("gsebo", batch_size=6, outer_optimizer="adam", **options)

    interrupt(fit(), data, tmp_path)
    expected = fit().fit(data)
    draw = random.Random(0)
    accepted = 0
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for _ in range(12):
            damaged = bytearray(content)
            damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            before = contents(tmp_path)
            begun: list[int] = []
            try:
                model = fit().fit(data, checkpoint=read_only(tmp_path, begun))
            except InvalidInput:
                assert begun == [] and contents(tmp_path) == before
            else:
                accepted += 1
                assert_same_run(model, expected)
            path.write_bytes(content)
    assert accepted < 10


def read_only(folder: Path, begun: list[int]) -> Checkpoint:
    """A checkpoint that goes on from what there is and leaves it so."""

    class ReadOnly(Checkpoint):
        def save(self, *arguments: Any, **options: Any) -> None:
            begun.append(1)

    return ReadOnly(folder, resume=True)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file(kind: str, data: Data, tmp_path: Path) -> None:
    path = saving(tmp_path).path
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match=f"is a {kind}; expected a file"):
        make("gsebo").fit(data, checkpoint=resuming(tmp_path))
    assert path.exists()


@pytest.mark.parametrize("number", [None, 1, 3, "2", True])
def test_another_format_is_refused(
    number: Any, data: Data, interrupted: Folders
) -> None:
    folder = interrupted("gsebo")
    rewritten(saving(folder).path, lambda _, facts: facts.update(format=number))
    refused_and_kept(folder, data, "expected format 2, which gsebo")


def test_without_a_checksum_it_is_of_an_older_version(
    data: Data, interrupted: Folders
) -> None:
    folder = interrupted("gsebo")
    path = saving(folder).path
    tensors, facts = read_tensors(path, "a checkpoint")
    save_file(tensors, path, {"json": json.dumps(facts)})
    refused_and_kept(folder, data, "no checksum, as older versions wrote it")


@pytest.mark.parametrize("junk", ["nan", "columns", "outside", "shape", "pipe"])
def test_tables_that_were_made_up(junk: str, data: Data, tmp_path: Path) -> None:
    def fit() -> Any:
        return make("gsebo", batch_size=6)

    interrupt(fit(), data, tmp_path)
    (table,) = tmp_path.glob("checkpoint-table-*")
    column = table / "change.npy"
    numbers = np.load(column, allow_pickle=False)
    if junk == "nan":
        np.save(column, numbers * np.nan)
    elif junk == "shape":
        np.save(column, numbers[..., :-1])

    def change(_: Any, facts: dict[str, Any]) -> None:
        own = facts["tables"]["table"]
        own["columns"]["change"] = checksum(column, "a column")
        if junk == "columns":
            own["columns"] = {"other": own["columns"]["change"]}
        if junk == "outside":
            own["folder"] = f"../{tmp_path.name}/{table.name}"

    rewritten(saving(tmp_path).path, change)
    if junk == "pipe":
        column.unlink()
        os.mkfifo(column)
    with pytest.raises(InvalidInput, match=r"expected|undamaged"):
        fit().fit(data, checkpoint=resuming(tmp_path))
    assert table.is_dir() and saving(tmp_path).path.exists()


@every_method
def test_a_place_that_cannot_be_written_is_told_at_once(
    name: str, data: Data, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    steps = []
    with pytest.raises(InvalidInput, match="cannot write"):
        make(name).fit(
            data,
            checkpoint=saving(tmp_path / "file" / "below"),
            watcher=lambda *step: steps.append(step),
        )
    assert steps == []
