"""Graphs in memory that users bring: objects of PyG, with one type or several."""

import warnings
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from fuzz.damage import JUNK, array_damage
from fuzz.graphs import require_relations, small_graph
from fuzz.target import Draw, Target
from gsebo import GSEBO, Vanilla
from gsebo.data import (
    apply_noise,
    apply_split,
    content_digest,
    load_npz,
    save_npz,
    validate,
)
from gsebo.data.formats.folder import write_folder
from gsebo.graph import as_graph

_FIELDS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "num_nodes")
_OF_EDGES = ("edge_weight", "edge_attr")
_CALLS = ("validate", "fit", "gsebo", "digest", "noise", "split", "save", "folder")
_NOISES = (
    "false_typed:20",
    "labels:20",
    "random:5",
    "removed:20",
    "features:30",
    "inter_class:4",
)
_SPLITS = ("random:20/30/50", "ratio:50/25/25", "planetoid:2/5/5", "halves", "unseen")
_FORMS = ("meta", "sparse", "csr", "nested", "conj", "expand", "numpy", "list", "grad")


@final
class Objects(Target):
    """Graphs in memory with fields of any type, shape and kind."""

    name, share = "objects", 4

    def draw(self, draw: Draw) -> Any:
        """Draw a field, what it becomes, and who gets the graph."""
        changes = {}
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            key = draw(st.sampled_from([*_FIELDS, "node_id", *_OF_EDGES]))
            count = small_graph().num_edges if key in _OF_EDGES else 30
            value = small_graph()[key] if key in small_graph() else torch.arange(count)
            changes[key] = _drawn_change(draw, value)
        call = draw(st.sampled_from(_CALLS))
        detail = draw(st.sampled_from(_NOISES if call == "noise" else _SPLITS))
        return changes, call, detail

    def read(self, case: Any, place: Path) -> None:
        """Hand the graph to who was drawn."""
        changes, call, detail = case
        data = small_graph()
        for key, (how, value) in changes.items():
            try:
                data[key] = _as_object(data, key, how, value)
            except (LookupError, RuntimeError, TypeError, ValueError):
                return  # Neither torch nor PyG makes such a thing.
        _handed(data, call, detail, place)


_TYPED_KEYS = {
    "a": ("x", "y", "train_mask", "val_mask", "num_nodes", "node_id", "metapath:m"),
    "b": ("x", "y", "train_mask", "num_nodes", "node_id", "metapath:m"),
    ("a", "to", "b"): ("edge_index", *_OF_EDGES),
    ("b", "is", "b"): ("edge_index", *_OF_EDGES),
}


def _hetero() -> HeteroData:
    """Two types and two relations that have all that is known of such."""
    data, place = HeteroData(), torch.arange(12)
    for name in ("a", "b"):
        data[name].x = torch.linspace(0, 1, 24).reshape(12, 2)
        data[name].node_id = place + 20 * (name == "b")
        data[name]["metapath:m"] = torch.ones(12, 3)
        data[name].num_nodes = 12
    data["a"].y = place % 2
    data["a"].train_mask, data["a"].val_mask = place < 6, place >= 6
    for relation in (("a", "to", "b"), ("b", "is", "b")):
        data[relation].edge_index = torch.stack([place, (5 * place + 1) % 12])
        data[relation].edge_weight = torch.ones(12)
        data[relation].edge_attr = torch.ones(12, 2)
    return data


@final
class HeteroObjects(Target):
    """Objects of PyG with several types, with fields of any type, shape and kind."""

    name, share = "hetero", 3
    may_leave = frozenset({"g.npz"})

    def draw(self, draw: Draw) -> Any:
        """Draw a field of a type or relation, and what it becomes."""
        changes = {}
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            store = draw(st.sampled_from(list(_TYPED_KEYS)))
            key = draw(st.sampled_from(_TYPED_KEYS[store]))
            value = _hetero()[store].get(key, torch.arange(12))
            changes[store, key] = _drawn_change(draw, value)
        return changes, draw(st.sampled_from(_CALLS)), draw(st.sampled_from(_NOISES))

    def read(self, case: Any, place: Path) -> None:
        """Hand the graph to who was drawn, and look at what it is taken for."""
        changes, call, detail = case
        data = _hetero()
        for (store, key), (how, value) in changes.items():
            given = data[store].get(key, torch.arange(12))
            try:
                data[store][key] = _changed(given, how, value)
            except (LookupError, RuntimeError, TypeError, ValueError):
                return  # Neither torch nor PyG makes such a thing.
        graph = as_graph(data)
        validate(graph, labels_needed=False)
        require_relations(graph)
        detail = detail if call == "noise" else "random:40/30/30"
        _handed(data, call, detail, place)


def _drawn_change(draw: Draw, value: Any) -> tuple[str, Any]:
    """How a field changes, and what that takes."""
    how = draw(st.sampled_from(["array", "array", "form", "junk", "out"]))
    if how == "array" and isinstance(value, torch.Tensor):
        return how, array_damage(draw, value.numpy())
    if how == "form":
        return how, draw(st.sampled_from(_FORMS))
    if how == "out":
        return how, None
    return "junk", draw(JUNK)


def _as_object(data: Data, key: str, how: str, value: Any) -> Any:
    count = small_graph().num_edges if key in _OF_EDGES else 30
    return _changed(data[key] if key in data else torch.arange(count), how, value)


def _changed(given: Any, how: str, value: Any) -> Any:
    if how == "array":
        return torch.from_numpy(np.ascontiguousarray(value))
    if how != "form":
        return value
    given = torch.as_tensor(given)
    made = {
        "meta": lambda: given.to("meta"),
        "sparse": lambda: given.to_sparse(),
        "csr": lambda: given.to_sparse_csr(),
        "nested": lambda: torch.nested.nested_tensor([given, given]),
        "conj": lambda: torch.complex(given.float(), given.float()).conj().imag,
        "expand": lambda: given.reshape(-1)[:1].expand(10**13),
        "numpy": lambda: given.numpy(),
        "list": lambda: given.tolist(),
        "grad": lambda: given.float().requires_grad_(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made[value]()


def _handed(data: Data, call: str, detail: str, place: Path) -> None:
    if call == "validate":
        validate(data)
    elif call == "fit":
        Vanilla(max_epochs=1, hidden_channels=3, random_state=0).fit(data)
    elif call == "gsebo":
        GSEBO(max_outer_steps=1, inner_steps=1, random_state=0).fit(data)
    elif call == "digest":
        content_digest(data)
    elif call == "noise":
        apply_noise(data, detail)
    elif call == "split":
        apply_split(data, detail)
    elif call == "save":
        save_npz(data, place / "g.npz")
        load_npz(place / "g.npz")
    else:
        write_folder(data, place / "folder")
