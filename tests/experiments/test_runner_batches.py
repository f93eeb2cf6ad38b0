"""Which trials go where, which at once, and in which order."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.small import result, trial
from gsebo.experiments import Result, Slot, Trial, engines
from gsebo.experiments.result import same_graph_for_all_seeds
from gsebo.experiments.runner import Durations, TrialQueue, is_dense

CPU, GPU = Slot("cpu"), Slot("gpu", "cuda", replicas=3)

trials = st.builds(
    trial,
    st.integers(0, 6),
    st.sampled_from(["vanilla", "gsebo", "gaug_o"]),
    dataset=st.sampled_from(["cora", "citeseer"]),
    split=st.sampled_from(["file", "halves:file"]),
    noise=st.sampled_from([0, 10, "removed:10"]),
    curves=st.booleans(),
)
slots = st.lists(
    st.builds(
        Slot,
        st.uuids().map(str),
        st.sampled_from(["cpu", "cuda"]),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=4,
)


@given(some=st.lists(trials, max_size=60), slots=slots, data=st.data())
def test_every_trial_is_taken_once(
    some: list[Trial], slots: list[Slot], data: st.DataObject
) -> None:
    waiting = TrialQueue("file", some, slots)
    on_gpu = any(slot.device == "cuda" for slot in slots)
    taken: list[Trial] = []
    while len(waiting):
        slot = data.draw(st.sampled_from(slots))
        batch = waiting.take(slot)
        if batch is None:
            # Only what is left for a GPU is refused.
            assert on_gpu
            assert slot.device == "cpu"
            continue
        first = batch.trials[0]
        assert len(batch.trials) <= slot.replicas
        if len(batch.trials) > 1:
            assert not first.curves
            assert all(map(same_graph_for_all_seeds, batch.trials))
        for place, one in enumerate(batch.trials):
            assert one.without_seed == first.without_seed
            assert one.seed == first.seed + place
            assert not (on_gpu and is_dense(one) and slot.device == "cpu")
        taken += batch.trials
    assert len(taken) == len({one.key for one in some})
    assert {one.key for one in taken} == {one.key for one in some}


def test_a_gpu_takes_dense_methods_first_and_others_then() -> None:
    dense, sparse = trial(0, "gaug_o"), trial(0, "vanilla")
    waiting = TrialQueue("file", [sparse, dense], [CPU, GPU])
    batches = [waiting.take(GPU), waiting.take(GPU)]
    assert [batch and batch.trials for batch in batches] == [(dense,), (sparse,)]


def test_without_a_gpu_the_cpu_takes_everything() -> None:
    dense = trial(0, "gaug_o")
    batch = TrialQueue("file", [dense], [CPU]).take(CPU)
    assert batch is not None
    assert batch.trials == (dense,)


def test_as_many_seeds_as_fit() -> None:
    waiting = TrialQueue("file", [trial(seed) for seed in (4, 0, 1, 3, 2)], [GPU])
    seeds = []
    while (batch := waiting.take(GPU)) is not None:
        seeds.append([one.seed for one in batch.trials])
    assert seeds == [[2, 3, 4], [0, 1]]


def test_long_trials_first_and_unknown_ones_before_them() -> None:
    known = [result(0, "vanilla", seconds=1.0), result(0, "gsebo", seconds=9.0)]
    durations = Durations(known)
    quick, slow, new = trial(5, "vanilla"), trial(5, "gsebo"), trial(5, "lds")
    similar = trial(5, "gsebo", parameters={"inner_steps": 3})
    order = durations.longest_first([quick, slow, new, similar])
    assert order == [new, slow, similar, quick]
    assert Durations().longest_first([quick, slow]) == [quick, slow]


def test_the_same_parameters_tell_more_than_similar_ones() -> None:
    short = Result(
        trial=trial(0, parameters={"max_epochs": 1}), test_accuracy=0.5, seconds=1.0
    )
    durations = Durations([short, result(0, seconds=3.0)])
    assert durations.of(trial(1, parameters={"max_epochs": 1})) == 1.0
    assert durations.of(trial(1)) == 3.0
    assert durations.of(trial(1, parameters={"max_epochs": 7})) == 2.0
    assert durations.of(trial(1, dataset="citeseer")) is None


def test_time_left() -> None:
    durations = Durations([result(0, seconds=4.0), result(1, error="no time")])
    assert durations.left([trial(2), trial(3)], workers=2) == 4.0
    # What is not known is taken to be as long as the others.
    assert durations.left([trial(2), trial(2, "lds")], workers=1) == 8.0
    assert durations.left([trial(2, "lds")], workers=1) is None
    assert durations.left([], workers=1) == 0.0


def test_one_bad_seed_does_not_fail_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def execute(
        trials: Sequence[Trial], *, device: str, data_dir: Path | None
    ) -> list[Result]:
        calls.append(len(trials))
        error = "seed 1" if any(one.seed == 1 for one in trials) else None
        accuracy = None if error else 0.5
        return [Result(trial=t, error=error, test_accuracy=accuracy) for t in trials]

    monkeypatch.setattr(engines, "execute", execute)
    some = [trial(seed) for seed in range(3)]
    results = [one for part in engines.run_batch(some, "cpu", None) for one in part]
    assert calls == [3, 1, 1, 1]
    assert [one.ok for one in results] == [True, False, True]
    assert [one.trial for one in results] == some
