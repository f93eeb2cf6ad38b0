"""What neither labels nor seeds change is computed once, with the same result."""

from collections.abc import Iterator
from copy import copy
from functools import partial
from threading import current_thread
from typing import Any

import pytest
import torch

from gsebo import Amortised, Inoculated
from gsebo.methods import amortised_fit, fitting
from gsebo.methods.fitting import PreparedGraph, laid_out_once
from gsebo.sparse.numba_compile import thread_limit
from gsebo.structure import amortised

from .auto_examples import auto, graph
from .examples import assert_same_fit
from .test_auto import drop

CPU = torch.device("cpu")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often graphs were laid out, and evidence gathered."""
    counts = {"canonicalise": 0, "make_features": 0, "evidence_of": 0}
    rooms = {
        "canonicalise": fitting,
        "make_features": fitting,
        "evidence_of": amortised,
    }

    def count(name: str, room: Any) -> None:
        original = getattr(room, name)

        def calling(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(room, name, calling)

    for name, room in rooms.items():
        count(name, room)
    return counts


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_folds_and_candidates_share_graph_and_evidence(
    counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(split="random:20/20/60", seed=1)
    options = {"methods": "vanilla,gsebo,amortised", "num_folds": 3}
    once = auto(**options).fit(data)
    assert (counted["canonicalise"], counted["make_features"]) == (1, 1)
    assert counted["evidence_of"] == 1
    counted.update(dict.fromkeys(counted, 0))
    monkeypatch.setattr(fitting, "_KEPT", _Forgetful())
    each_time = auto(**options).fit(data)
    assert counted["canonicalise"] > 5 and counted["evidence_of"] >= 3
    assert_same_fit(once, each_time)
    assert [drop(each) for each in once.choice_] == [
        drop(each) for each in each_time.choice_
    ]


class _Forgetful:
    """Keeps nothing from one graph to the next."""

    def get(self) -> None:
        return None

    def set(self, kept: Any) -> None:
        return None

    def reset(self, token: Any) -> None:
        return None


def test_only_what_is_the_same_is_shared() -> None:
    data = graph()
    other = copy(data)
    other.y = 1 - data.y
    moved = copy(data)
    moved.x = data.x + 1
    fewer = copy(data)
    fewer.edge_index = data.edge_index[:, :-2]
    with laid_out_once():
        given, labels, features, edges = (
            PreparedGraph(each, CPU) for each in (data, other, moved, fewer)
        )
        assert labels.graph is given.graph and labels.features is given.features
        assert labels.topology(self_loops=True) is given.topology(self_loops=True)
        assert given.topology(self_loops=True) is not given.topology(self_loops=False)
        assert features.graph is given.graph
        assert features.features is not given.features
        assert edges.graph.num_edges == given.graph.num_edges - 2
        assert edges.features is given.features
        assert given.with_edges(data.edge_index).graph is not given.graph
    assert PreparedGraph(data, CPU).graph is not given.graph


@pytest.mark.parametrize("kind", [Amortised, Inoculated])
def test_seeds_are_fitted_side_by_side_and_share_evidence(
    kind: Any, counted: dict[str, int], two_threads: None
) -> None:
    data = graph(split="random:20/20/60", seed=1)
    quick = partial(kind, max_outer_steps=5, refit_epochs=3, device="cpu")
    threads: set[str] = set()

    def watch(record: Any, logits: Any) -> None:
        threads.add(current_thread().name)

    seeds = quick(random_state=0).fit(data, replicas=3, watcher=watch).replicas_
    assert (len(threads) > 1) == (thread_limit() > 1)
    # Inoculated ones judge other edges in every step.
    assert counted["evidence_of"] == 1 or kind is Inoculated
    for number, one in enumerate(seeds):
        assert_same_fit(one, quick(random_state=number).fit(data))


@pytest.mark.parametrize("labels", ["all", "train"])
def test_folds_learn_from_features_side_by_side(
    labels: str, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(split="random:30/30/40")
    model = Amortised(
        labels=labels, max_outer_steps=5, refit_epochs=20, device="cpu", random_state=0
    )
    workers: list[int] = []
    original = amortised_fit.shared_out

    def counted(items: Any, count: int, each: Any) -> Any:
        workers.append(count)
        return original(items, count, each)

    monkeypatch.setattr(amortised_fit, "shared_out", counted)
    together = copy(model).fit(data)
    assert workers == [thread_limit()]
    torch.set_num_threads(1)
    alone = copy(model).fit(data)
    assert workers[1:] == [1]
    assert_same_fit(together, alone)
