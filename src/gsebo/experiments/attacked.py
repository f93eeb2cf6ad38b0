"""Graphs that were attacked before anything is fitted on them: poisoning.

An attacked graph depends on the graph, on the budget and on a seed, and not on what is
fitted on it. So the pairs that change are computed once and kept in the user's cache
folder, under a checksum of all that they depend on. A file there is a claim as any
other: what was damaged, or is of something else, is computed again.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor

from gsebo.attacks.budget import read_budget
from gsebo.attacks.perturbation import Perturbation, undirected_pairs
from gsebo.attacks.prbcd import PRBCD
from gsebo.data.datasets.load import content_digest
from gsebo.data.datasets.registry import cache_folder
from gsebo.data.validate import sized, validate
from gsebo.errors import InvalidInput
from gsebo.files import (
    Record,
    Sha256,
    Size,
    plain_as,
    read_sealed,
    sealed_json,
    write_atomically,
)
from gsebo.graph.graph import Graph
from gsebo.methods.controls import Vanilla

# Counts up when the same attack with the same parameters would give other pairs.
_FORMAT = 1
_WIDTH = 64
# Loss and block are those with which PyG's PRBCD is mostly run.
_BLOCK = 250_000
_WHAT = "an attacked graph"
_Pairs = list[tuple[Size, Size]]


def attacked_by_prbcd(graph: Graph, percent: int, seed: int) -> Graph:
    """A copy of a graph in which PRBCD has changed so many percent of the edges.

    The attack is aimed at all test nodes and transferred from a plain GCN of width 64
    that is fitted on the graph as it is, with the same seed. It knows all labels, as
    evaluations mostly assume.

    Raises:
        InvalidInput: The graph has no labels, features or test nodes, or the cache
            folder cannot be written.
    """
    validate(graph)
    graph = sized(graph)
    victim = Vanilla(hidden_channels=_WIDTH, device="cpu", random_state=seed)
    attack = PRBCD(knows_labels=True, loss="prob_margin", block_size=_BLOCK)
    facts = {
        "format": _FORMAT,
        "graph": checksum_of_content(graph),
        "attack": asdict(attack),
        "victim": victim.get_params(deep=False),
        "percent": percent,
        "seed": seed,
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / "attacked" / f"prbcd-{key[:32]}.json"
    budget = read_budget(f"{percent}%", len(undirected_pairs(graph)))
    change = _stored(path, key, graph, budget)
    if change is None:
        with _alone(path.parent):
            # Another process may have been at it.
            change = _stored(path, key, graph, budget)
            if change is None:
                victim.fit(graph)
                change = attack.attack(
                    graph,
                    budget=budget,
                    victim=victim,
                    nodes="test",
                    random_state=seed,
                )
                _store(path, key, change)
    attacked: Graph = change.apply(graph)
    return attacked


def checksum_of_content(graph: Graph) -> str:
    """The sha256 of everything in a graph that an attack or its victim may look at."""
    digest = hashlib.sha256(content_digest(graph).encode())
    for name in ("edge_weight", "edge_attr"):
        if name in graph and graph[name] is not None:
            values = graph[name].detach().cpu().contiguous()
            digest.update(f"{name}{values.dtype}{tuple(values.shape)}".encode())
            digest.update(values.numpy().tobytes())
    return digest.hexdigest()


class _ChangedPairs(Record, frozen=True, kw_only=True):
    """What a file of the cache says."""

    format: int
    key: Sha256  # Of all that the pairs depend on.
    added: _Pairs
    removed: _Pairs


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from computing the same at the same time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", is_singleton=True)
        lock.acquire()
    except OSError as error:
        raise InvalidInput(
            f"cannot write the cache folder {folder}: expected to be allowed to; "
            "GSEBO_CACHE names another."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _store(path: Path, key: str, change: Perturbation) -> None:
    content = {
        "format": _FORMAT,
        "key": key,
        "added": change.added.tolist(),
        "removed": change.removed.tolist(),
    }
    write_atomically(path, sealed_json(content))


def _stored(path: Path, key: str, graph: Graph, budget: int) -> Perturbation | None:
    """What was computed before; ``None`` where nothing was, or it cannot be it."""
    try:
        content = read_sealed(path, _WHAT, of_format=_FORMAT)
        found = plain_as(_ChangedPairs, content, f"{path}", _WHAT)
    except InvalidInput:
        return None
    change = Perturbation(_tensor(found.added), _tensor(found.removed))
    if found.key != key or change.num_flips > budget or not _is_of(change, graph):
        return None
    return change


def _is_of(change: Perturbation, graph: Graph) -> bool:
    """Whether a graph has exactly those pairs that are said to be removed."""
    flips = change.flips
    if len(flips) and int(flips.max()) >= graph.num_nodes:
        return False
    again = Perturbation.of_flips(flips, graph)
    same = torch.equal(again.added, change.added)
    return same and torch.equal(again.removed, change.removed)


def _tensor(pairs: _Pairs) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
