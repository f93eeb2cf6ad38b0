"""Model files made up by somebody who knows the format: all checksums are right."""

import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gsebo import InvalidInput, load_model, memory
from gsebo.data.formats.folder import GraphFolder, write_folder

from .auto_examples import auto
from .batch_examples import amortised_on_batches, gsebo_on_batches
from .examples import fitted, small_graph
from .saved import (
    assert_refused,
    change_facts,
    change_tensors,
    facts_of,
    put_facts,
)

Harm = Callable[[Tensor], Tensor]


def put(value: Any) -> Harm:
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        if changed.numel():
            changed.view(-1)[-1] = value
        return changed

    return change


# What no tensor of any model may be turned into.
ALWAYS: dict[str, Harm] = {
    "empty": lambda t: t.new_empty(0),
    "no rows": lambda t: t[:0] if t.dim() and len(t) else t.new_empty(0, 3),
    "vast and empty": lambda t: t.new_empty(0, 2**40),
    "one more axis": lambda t: t.unsqueeze(0),
    "longer": lambda t: torch.cat([t, t]) if t.dim() else t.repeat(2),
    "bytes": lambda t: t.to(torch.uint8),
    "half": lambda t: t.to(torch.float16),
    "truth": lambda t: t.to(torch.bool),
}
NUMBERS: dict[str, Harm] = {
    "nan": put(float("nan")),
    "infinite": put(-float("inf")),
    "whole numbers": lambda t: t.to(torch.int64),
}
INDICES: dict[str, Harm] = {
    "negative": put(-1),
    "far too large": put(2**62),
    "numbers": lambda t: t.to(torch.float32),
}
# Any whole number may stand there: labels of test nodes, hashes, names of nodes.
FREE = ("labels", "node_hash", "node_id")


def harms_of(name: str, tensor: Tensor) -> dict[str, Harm]:
    own = NUMBERS if tensor.is_floating_point() else INDICES
    if name in FREE:
        own = {"numbers": own["numbers"]}
    if tensor.dim():
        own = {"number alone": lambda t: t.view(-1)[:1].squeeze(), **own}
    return ALWAYS | own


@cache
def saved(kind: str, base: Path) -> Path:
    """A model of each kind, saved once; copy it before harming it."""
    place, graph = base / kind, base / "graph"
    if kind in ("folder", "function of a folder"):
        make = gsebo_on_batches if kind == "folder" else amortised_on_batches
        if not graph.exists():
            write_folder(small_graph(), graph)
        make(max_outer_steps=1).fit(GraphFolder.open(graph)).save(place)
    elif kind == "choice":
        auto(features="standard", methods="vanilla").fit(small_graph()).save(place)
    else:
        fitted(kind).save(place)
    return place


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved")


each_kind = pytest.mark.parametrize(
    "kind",
    ["gsebo", "amortised", "bgcn", "choice", "folder", "function of a folder"],
)


@each_kind
def test_no_tensor_may_be_anything_else(kind: str, base: Path, tmp_path: Path) -> None:
    """Each of them harmed in one of the ways, in turn, so that all ways occur."""
    folder = Path(shutil.copytree(saved(kind, base), tmp_path / "model"))
    whole: dict[str, Tensor] = {}
    change_tensors(folder, lambda tensors: whole.update(tensors))
    for turn, (name, tensor) in enumerate(whole.items()):
        harms = list(harms_of(name, tensor).items())
        # Four ways of each tensor: together they go through all of them.
        for number in range(4):
            how, harm = harms[(4 * turn + number) % len(harms)]
            change_tensors(folder, lambda _, n=name, h=harm: whole | {n: h(whole[n])})
            said = assert_refused(folder)
            assert name.split(":")[-1] in said or "layers of width" in said, how
    change_tensors(folder, lambda _: whole)
    load_model(folder)


@each_kind
def test_no_tensor_may_be_missing_or_foreign(
    kind: str, base: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(saved(kind, base), tmp_path / "model"))
    whole: dict[str, Tensor] = {}
    change_tensors(folder, lambda tensors: whole.update(tensors))
    for name in whole:
        change_tensors(
            folder, lambda _, n=name: {k: t for k, t in whole.items() if k != n}
        )
        assert_refused(folder)
    for name in ("other", "weight:other", "member0:edges", "member7:edges", "scorer:x"):
        change_tensors(folder, lambda _, n=name: whole | {n: torch.zeros(2)})
        assert_refused(folder)


JUNK: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1.5, 1e300, "", "x", "a" * 300),
    *([], [1], {}, {"code": 3}, [[[[]]]], "\x1b[2J"),
]
SIZES = [10**6, 2**31 - 1, 2**31, 2**47, 10**30]


@each_kind
def test_no_fact_may_be_anything_else(kind: str, base: Path, tmp_path: Path) -> None:
    """Whatever is claimed, nothing is built of it: none of this takes long."""
    folder = Path(shutil.copytree(saved(kind, base), tmp_path / "model"))
    facts = facts_of(folder)
    free = {
        *("sha256", "dataset", "seed", "best_step", "versions", "history", "learned"),
        *("files", "graph", "parameters"),
    }
    # What is said of the graph, of a member or of a scorer is as little to be trusted.
    inside = {"": facts, "graph": facts["graph"], "scorer": facts["scorer"]}
    inside["members"] = next(iter(facts["members"]), None)
    places = [
        (part, name)
        for part, there in inside.items()
        if isinstance(there, dict)
        for name in sorted(there)
        if part or name not in free
    ]

    def put_in(part: str, said: dict[str, Any]) -> None:
        changed: Any = [said, *facts["members"][1:]] if part == "members" else said
        put_facts(folder, facts | {part: changed} if part else said)

    begun = time.perf_counter()
    for turn, (part, name) in enumerate(places):
        there = inside[part]
        for junk in (*JUNK[turn % 3 :: 3], *SIZES[turn % 2 :: 2]):
            if type(junk) is type(there[name]) and junk == there[name]:
                continue
            # What is true of a model with one layer is so of none.
            try:
                put_in(part, there | {name: junk})
            except OverflowError:
                continue
            said = assert_refused(folder)
            assert "\x1b" not in said
        put_in(part, {key: each for key, each in there.items() if key != name})
        assert_refused(folder)
    put_facts(folder, facts | {"another": 1})
    assert "another" in assert_refused(folder)
    put_facts(folder, facts)
    load_model(folder)
    assert time.perf_counter() - begun < 60


@each_kind
@pytest.mark.parametrize(
    "name", ["hidden_channels", "num_layers", "backbone_options", "backbone"]
)
def test_huge_parameters_are_refused_before_anything_is_built(
    kind: str, name: str, base: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(saved(kind, base), tmp_path / "model"))
    parameters = facts_of(folder)["parameters"]
    values: dict[str, list[Any]] = {
        "backbone_options": [{"heads": 10**6}, {"x": 1}, [3]],
        "backbone": ["nothing", 3, None, {"code": "os.system"}, "pyg:GCN"],
    }
    begun = time.perf_counter()
    for value in values.get(name, SIZES):
        change_facts(folder, parameters=parameters | {name: value})
        assert_refused(folder)
    assert time.perf_counter() - begun < 20


def test_records_of_steps(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("gsebo", base), tmp_path / "model"))
    step = facts_of(folder)["history"][0]
    wrong: list[Any] = [
        *(3, None, [], {}, step | {"more": 1}, step | {"step": -1}),
        *(step | {"val_accuracy": 1.5}, step | {"seconds": "long"}),
        *(step | {"inner_steps": 2**60}, step | {"train_loss": None}),
    ]
    for record in wrong:
        change_facts(folder, history=[record])
        assert "model.json" in assert_refused(folder)


def test_files_outside_the_folder_are_not_read(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("gsebo", base), tmp_path / "model"))
    (tmp_path / "secret").write_text("x")
    for files in (
        {},
        {"../secret": "0" * 64},
        {"own.npy": "0" * 64},
        {"model.json": 1},
    ):
        change_facts(folder, files=files)
        assert "model.json" in assert_refused(folder)


def test_edges_in_another_order(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("gsebo", base), tmp_path / "model"))
    whole: dict[str, Tensor] = {}
    change_tensors(folder, lambda tensors: whole.update(tensors))
    edges = whole["edge_index"]
    doubled = edges.clone()
    doubled[:, 1] = doubled[:, 0]
    loop = edges.clone()
    loop[0, 3] = loop[1, 3]
    for wrong in (edges.flip(1), edges.flip(0).flip(1), doubled, loop):
        change_tensors(folder, lambda _, w=wrong: whole | {"edge_index": w})
        assert "edges are not in order" in assert_refused(folder)


@pytest.mark.parametrize("kind", ["folder", "function of a folder"])
def test_tables_of_a_folder(kind: str, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved(kind, base), tmp_path / "model"))
    path, facts = folder / "own.npy", facts_of(folder)
    own = np.load(path, allow_pickle=False)
    broken = own.copy()
    broken[..., 5] = np.nan
    others = [
        *(
            broken,
            own.astype("f8"),
            own.astype(">f4"),
            own[..., :-1],
            own[None],
            own[0],
        ),
        *(np.asfortranarray(np.stack([own, own])), own.astype(int), own[:0]),
    ]
    for wrong in others:
        np.save(path, wrong)
        put_facts(folder, facts)
        assert "own.npy" in assert_refused(folder)
    for text in (
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{",
        path.read_bytes()[:90],
    ):
        path.write_bytes(text)
        put_facts(folder, facts)
        assert "own.npy" in assert_refused(folder)
    # One that agrees with its description, but not with the graph.
    np.save(path, own[..., :-1])
    put_facts(folder, facts | {"own": own.shape[-1] - 1})
    with pytest.raises(InvalidInput, match=r"numbers for \d+ entries; expected"):
        load_model(folder).predict_proba(small_graph())


@pytest.mark.parametrize(
    "header",
    [
        b"\xff" * 8,
        (10**9).to_bytes(8, "little"),
        (2).to_bytes(8, "little") + b"{}",
        b'@\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1e9],"data_offsets":[0,4]}}',
        b'F\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4]}}',
        b'E\0\0\0\0\0\0\0{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}   ',
    ],
    ids=str,
)
def test_headers_that_claim_too_much(header: bytes, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("gsebo", base), tmp_path / "model"))
    (folder / "model.safetensors").write_bytes(header)
    put_facts(folder, facts_of(folder))
    assert "model.safetensors is damaged or not" in assert_refused(folder)


def test_weights_that_wait_for_their_input_take_no_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted("vanilla", "GIN").save(tmp_path)
    monkeypatch.setattr(memory, "free_memory", lambda device: 100)
    with pytest.raises(InvalidInput, match="network of 8 features on 60 nodes takes"):
        load_model(tmp_path)


def test_weights_of_which_nothing_can_be_predicted(tmp_path: Path) -> None:
    fitted("gsebo").save(tmp_path)

    def enlarge(tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if name.startswith("weight:"):
                tensor.fill_(3e38)

    change_tensors(tmp_path, enlarge)
    with pytest.raises(InvalidInput, match="not finite"):
        load_model(tmp_path).predict_proba(small_graph())
