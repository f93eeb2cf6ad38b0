"""Stored trials that are run again: do they still say what they said?

With nothing else changed one seed gives one result, bit for bit. With another
processor, other libraries or another version of the source the figures may differ, but
not by more than seeds do.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Literal, final

import torch

from gsebo.experiments.engines import ProcessEngine
from gsebo.experiments.result import Result
from gsebo.experiments.runner import Slot, TrialBatch
from gsebo.experiments.store import Store, stale
from gsebo.names import own_name

Verdict = Literal["equal", "within the spread", "neither", "failed"]

# What a fit came to, of which a line has all or some.
_OUTCOME = (
    "test_accuracy",
    "val_accuracy",
    "val_loss",
    "test",
    "val",
    "best_step",
    "outer_iterations",
    "new_edges",
    "edges",
    "curves",
    "detection",
    "evasion",
)
_SCORES = ("test_accuracy", "val_accuracy", "val_loss")
_DEVIATIONS = 3
# How far from the stored figure another rounding may lead where seeds say nothing: of
# an accuracy, and of a loss as a share of it if that is larger than 1.
_ROUNDING = 0.005
_DIRTY = "-dirty"


@final
@dataclass(frozen=True)
class Draw:
    """Trials that are to be run again, and what they were drawn from."""

    trials: tuple[tuple[str, Result], ...]  # With the names of their files.
    eligible: int  # How many there were to draw from.
    longer: int  # How many were left out because they took too long.
    elsewhere: int  # How many because they ran on a device that is not here.


def draw_trials(
    store: Store, number: int, *, seed: int, longest: float, recipe: str | None = None
) -> Draw:
    """Draw stored trials that came to their end, each as likely as any other.

    One that ran on a GPU is drawn where there is one: how long it takes on a processor
    is not known, and may be a hundred times as long.

    Args:
        store: Where from.
        number: How many, or all if there are fewer.
        seed: The same store and seed give the same trials.
        longest: Trials whose stored time is longer, in seconds, are not drawn.
        recipe: The name of the only file to draw from.
    """
    by_file = _counting_results(store)
    if recipe is not None:
        name = own_name("recipe", recipe, by_file)
        by_file = {name: by_file[name]}
    ended = [
        (name, result)
        for name, results in by_file.items()
        for result in results
        if result.ok
    ]
    slots = _slots()
    here = [(name, result) for name, result in ended if _device(result) in slots]
    short = [
        (name, result)
        for name, result in here
        if result.whole_seconds is not None and result.whole_seconds <= longest
    ]
    # Whatever the order of the lines.
    short.sort(key=lambda pair: pair[1].key)
    chosen = random.Random(seed).sample(short, min(number, len(short)))
    return Draw(
        tuple(chosen), len(short), len(here) - len(short), len(ended) - len(here)
    )


def _counting_results(store: Store) -> dict[str, list[Result]]:
    """Results by the file that holds the line that counts."""
    known = store.results()
    found: dict[str, list[Result]] = {}
    for path in store.paths():
        for line in store.texts(path)[:-1]:
            result = Result.from_line(line)
            if known.get(result.key) == result:
                found.setdefault(path.stem, []).append(known.pop(result.key))
    return found


@final
@dataclass(frozen=True)
class Rerun:
    """A stored result beside that of the same trial today."""

    recipe: str
    stored: Result
    again: Result
    others: tuple[Result, ...]  # Stored too, of trials with other seeds.

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Which of the stored figures are others today, such as ``"val_loss"``."""
        then, now = (_outcome(one) for one in (self.stored, self.again))
        return tuple(name for name, value in then.items() if now.get(name) != value)

    @cached_property
    def changed(self) -> dict[str, str | None]:
        """What else is not as it was, or not known to be, and what it was if known."""
        found = {
            name: before
            for name, before, now in _circumstances(self.stored, self.again)
            # Of a source with changes nobody knows whether they are the same.
            if before != now or str(now).endswith(_DIRTY)
        }
        if sentences := stale(self.stored):
            found["defaults"] = " ".join(sentences)
        return found

    @property
    def spread(self) -> dict[str, tuple[float, float]]:
        """Where three standard deviations of the stored seeds end, for each score."""
        return {
            name: self._limits(name, value)
            for name, value in score_figures(self.stored).items()
        }

    @property
    def verdict(self) -> Verdict:
        """Equal, or within the spread if something else has changed, or neither."""
        if not self.again.ok:
            return "failed"
        if not self.differing:
            return "equal"
        # Without a cause, nothing may differ.
        if self.changed and all(map(self._is_within, score_figures(self.stored))):
            return "within the spread"
        return "neither"

    @property
    def holds(self) -> bool:
        """Whether the stored figures can be relied on."""
        return self.verdict in ("equal", "within the spread")

    def _is_within(self, score: str) -> bool:
        before, now = (
            score_figures(self.stored)[score],
            score_figures(self.again).get(score),
        )
        if now is None:
            return False
        near = abs(now - before) <= _ROUNDING * max(1.0, abs(before))
        # Either among the other seeds: a figure that is far off would be within any
        # spread that it has a part in.
        return near or (
            _is_between(now, *self._limits(score, before))
            and _is_between(before, *self._limits(score, now))
        )

    def _limits(self, score: str, own: float) -> tuple[float, float]:
        """Those of the other seeds and a figure in the place of this one's."""
        values = [own]
        values += [
            found[score] for o in self.others if score in (found := score_figures(o))
        ]
        width = _DEVIATIONS * stdev(values) if len(values) > 1 else 0.0
        return mean(values) - width, mean(values) + width


def run_again(
    draw: Draw, store: Store, data_dir: Path | None = None
) -> Iterator[Rerun]:
    """Run trials again, one after the other, as a recipe would; nothing is stored."""
    cells: dict[str, list[Result]] = {
        result.trial.without_seed: [] for _, result in draw.trials
    }
    for known in store.results().values():
        if known.ok and known.trial.without_seed in cells:
            cells[known.trial.without_seed].append(known)
    slots = _slots()
    with TemporaryDirectory(prefix="gsebo-rerun-") as folder:
        engine = ProcessEngine(Store(Path(folder)), list(slots.values()), data_dir)
        with closing(engine):
            engine.open()
            for recipe, stored in draw.trials:
                batch = TrialBatch("again", (stored.trial,))
                engine.start(slots[_device(stored)], batch)
                ((_, (again,)),) = engine.wait()
                cell = cells[stored.trial.without_seed]
                others = tuple(one for one in cell if one.key != stored.key)
                yield Rerun(recipe, stored, again, others)


def _slots() -> dict[str, Slot]:
    """Where trials can run here, by the device that they ran on."""
    names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return {name: Slot(name, name) for name in names}


def _device(result: Result) -> str:
    """Kind of device that a trial ran on, without its model."""
    return result.device.partition(" ")[0]


def score_figures(result: Result) -> dict[str, float]:
    """The figures of a result that seeds spread around a mean, by name."""
    found = {
        name: value for name in _SCORES if (value := getattr(result, name)) is not None
    }
    if result.detection is not None:
        signals = result.detection["signals"].items()
        found |= {f"area of {name}": signal["area"] for name, signal in signals}
        found["stated share"] = result.detection["stated_share"]
    attacks = (result.evasion or {}).items()
    return found | {f"after {name}": attack["after"] for name, attack in attacks}


def _is_between(value: float, low: float, high: float) -> bool:
    return low <= value <= high


def _outcome(result: Result) -> dict[str, Any]:
    """All figures by name, without how long anything took; ``None`` is no figure."""
    found: dict[str, Any] = {}
    for name in _OUTCOME:
        value = getattr(result, name)
        if isinstance(value, dict):
            found |= {f"{name}.{key}": _timeless(part) for key, part in value.items()}
        elif value is not None:
            found[name] = value
    return found


def _timeless(figure: Any) -> Any:
    if not isinstance(figure, dict):
        return figure
    return {key: value for key, value in figure.items() if key != "seconds"}


def _circumstances(
    stored: Result, again: Result
) -> Iterator[tuple[str, str | None, str | None]]:
    """Name of everything that figures depend on beside the trial, then and now."""
    yield "device", stored.device, again.device
    yield "processor", stored.processor, again.processor
    yield "instructions", stored.instructions, again.instructions
    for package, version in again.versions.items():
        yield package, stored.versions.get(package), version
    yield "commit", stored.commit, again.commit
