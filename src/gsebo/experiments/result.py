"""A fit that is to be made, and what became of it.

A result is one JSON line, from which everything shown derives.
"""

import hashlib
import json
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from gsebo import data
from gsebo.data import DATASETS, noise_in_words, noise_spec
from gsebo.errors import InvalidInput, escaped
from gsebo.files import Count, Key, Name, Record, Seed, Share, Size, Text, Value
from gsebo.metrics import MetricName
from gsebo.names import lookup


class Trial(Record, frozen=True, dict=True):
    """Everything that the outcome of a fit depends on.

    Where it runs is not part of it: a fit on another device is the same to rounding.

    Attributes:
        method: Name of the method.
        backbone: Name of the network.
        dataset: Name of the graph.
        split: Name of the split.
        seed: Of the weights, of the noise, and of a split that is drawn.
        noise: Number of false edges that are added, or ``"KIND:LEVEL"`` of other noise.
        parameters: What differs from the constructor's defaults.
        curves: Whether every step is recorded, with its test accuracy.
        evasion: How the fitted model is attacked, by name.
    """

    method: Name
    backbone: Name
    dataset: Name
    split: Name
    seed: Seed
    noise: Annotated[int, Meta(ge=0, le=10**15)] | Name = 0
    parameters: dict[Key, Value] = msgspec.field(default_factory=dict)
    curves: bool = False
    evasion: Name | None = None

    def content(self) -> dict[str, Any]:
        """All that it says, as it is stored."""
        content = asdict(self)
        if self.evasion is None:
            # Trials have been stored since before there was such a thing.
            del content["evasion"]
        return content

    @cached_property
    def key(self) -> str:
        """Short name that no other trial has."""
        text = json.dumps(self.content(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    @cached_property
    def without_seed(self) -> str:
        """The same for trials that differ by their seeds alone."""
        return replace(self, seed=0).key

    def __str__(self) -> str:
        words = [self.method, self.backbone, self.dataset, f"seed {self.seed}"]
        if self.noise:
            words.append(noise_in_words(self.noise))
        if self.evasion:
            words.append(f"attacked ({self.evasion})")
        words += [f"{name}={json.dumps(v)}" for name, v in self.parameters.items()]
        return ", ".join(words)


_HALVES = "halves"
_PARTS = ("unseen", "seen")


def full_split_name(dataset: str, split: str | None) -> str:
    """Name of a split of a dataset with everything that it depends on spelt out.

    ``None`` is the dataset's own, ``"halves"`` its own with validation halved,
    ``"unseen:20"`` or ``"seen:20"`` a part of its own test nodes.
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


def same_graph_for_all_seeds(trial: Trial) -> bool:
    """Whether trials that differ from this by their seeds alone have the same graph."""
    return not trial.noise and not data.is_drawn(trial.split)


BINS = tuple(number / 10 for number in range(21))
"""Edges of the bars of strength / start; a last bar has all that is above."""


GroupName = Literal["within", "between", "false"]


class GroupOutcome(TypedDict):
    """What became of a group of edges."""

    count: Count
    # Of strength / start, over those that had any at the start.
    mean: Annotated[float, Meta(ge=0, le=1e15)] | None
    zero: Size  # How many have no strength left.
    # How many of those that had any are in each of the bars.
    histogram: Annotated[list[Size], Meta(min_length=21, max_length=21)]


EdgeGroups = dict[GroupName, GroupOutcome]
"""The groups of one layer; one without any edge is left out."""


SCHEMA = 3
"""What a line of today says of itself; older ones are brought up to date by
:mod:`gsebo.experiments.migrate`."""

Figure = Annotated[float, Meta(ge=-1e15, le=1e15)]
Word = Annotated[str, Meta(max_length=200)]
_Figures = Annotated[list[Figure], Meta(min_length=1)]


class Curves(TypedDict):
    """How many steps of the weights were made at each look, and how it stood."""

    inner_steps: Annotated[list[Size], Meta(min_length=1)]
    train_loss: _Figures
    train_accuracy: _Figures
    val_loss: _Figures
    val_accuracy: _Figures
    test_accuracy: _Figures


class Signal(TypedDict):
    """How well a number tells false edges from the others."""

    area: Share  # Under the ROC curve.
    average_precision: Share


class StatedPrecision(TypedDict):
    """Of the first edges, the share of false ones that was stated, and the true one."""

    first: Count
    stated: Share
    low: Share
    high: Share
    true: Share


class Detection(TypedDict):
    """What became of a ranking of edges by how suspicious they are."""

    num_edges: Count
    num_false: Size
    stated_share: Share  # Of false edges.
    signals: dict[Name, Signal]  # The score and what it was made of; empty: no false.
    precision: list[StatedPrecision]


Scores = dict[MetricName, Figure]
"""Metrics of the same nodes; of more than two classes there is no ``roc_auc``."""


class AttackOutcome(TypedDict):
    """What an attack did to the predictions of a fitted model."""

    nodes: Count  # How many were attacked.
    before: Share  # Of them that are predicted rightly on the graph as it is.
    after: Share  # And on the attacked one: where each has its own, on its own.
    flips: Size  # Number of pairs that changed; of all graphs together.
    seconds: Annotated[float, Meta(ge=0, le=1e9)]


class StoredChoice(TypedDict):
    """What an automatic fit chose, and why."""

    method: Name
    backbone: Name
    width: Count | None  # Hidden channels, where the method has such a parameter.
    preparation: Name  # What is done to the features.
    epochs: Count | None  # ``None`` if the method stops by itself.
    # Share of edges far from labels that look false beyond those near them.
    shift: Annotated[float, Meta(ge=0, le=1e15)]
    reason: Text


class Result(Record, frozen=True, kw_only=True):
    """The outcome of a trial, or why it has none; then all figures are ``None``.

    Attributes:
        trial: What was fitted.
        error: Why there are no figures.
        test_accuracy: At the step that was kept.
        val_accuracy: Over the nodes that decided which step to keep, at that step.
        val_loss: Over the same nodes.
        test: Every metric over the test nodes, of the model that came out; results that
            were stored before there were any have none.
        val: The same over the validation nodes.
        best_step: Number of the step that was kept.
        outer_iterations: How many steps there were.
        new_edges: Number of edges that the method added.
        seconds: For the fit; of fits made together, the share of each.
        peak_memory_bytes: Of all fits made together.
        together: Number of fits made at once.
        all_parameters: Those of the constructor, defaults included.
        edges: How strengths changed: one entry for each layer or one for all, where the
            method learned a structure.
        curves: Every step, where the trial asked for them.
        detection: Where edges were ranked.
        choice: Where the fit chose a method by itself.
        evasion: By what was attacked and how, where the trial asked for it.
        device: ``"cpu"`` or ``"cuda"``, and what that is in brackets.
        processor: Name of the CPU.
        instructions: That torch computed with, such as ``"AVX2"``.
        commit: Of the source, if a git checkout; with ``-dirty`` where files were
            changed since.
        versions: Of the packages, by their names.
        finished: When the fit ended.
    """

    trial: Trial
    error: Text | None = None
    test_accuracy: Share | None = None
    val_accuracy: Share | None = None
    val_loss: Figure | None = None
    test: Scores | None = None
    val: Scores | None = None
    best_step: Count | None = None
    outer_iterations: Count | None = None
    new_edges: Size | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    peak_memory_bytes: Size | None = None
    together: Count | None = None
    all_parameters: dict[Key, Value] | None = None
    edges: list[EdgeGroups] | None = None
    curves: Curves | None = None
    detection: Detection | None = None
    choice: StoredChoice | None = None
    evasion: dict[Name, AttackOutcome] | None = None
    device: Word = ""
    processor: Word | None = None
    instructions: Word | None = None
    commit: Word | None = None
    versions: dict[Name, Word] = msgspec.field(default_factory=dict)
    finished: Word = msgspec.field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds")
    )

    @property
    def key(self) -> str:
        """That of the trial."""
        return self.trial.key

    @property
    def ok(self) -> bool:
        """Whether the trial came to its end."""
        return self.error is None

    def score(self, metric: str) -> float | None:
        """A metric over the test nodes; ``None`` where it was not stored."""
        if metric == "accuracy":
            return self.test_accuracy
        return (self.test or {}).get(cast(MetricName, metric))

    @property
    def whole_seconds(self) -> float | None:
        """For the fit, and for attacks on what was fitted."""
        if self.seconds is None:
            return None
        attacks = (self.evasion or {}).values()
        return self.seconds + sum(attack["seconds"] for attack in attacks)

    def line(self) -> str:
        """As one line of JSON, without its end; what is ``None`` is left out."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "id": self.key,
            "trial": self.trial.content(),
            "status": "ok" if self.ok else "failed",
        }
        values = {**asdict(self), "trial": None}
        content |= {name: value for name, value in values.items() if value is not None}
        return json.dumps(content, allow_nan=False)

    @classmethod
    def from_line(cls, line: bytes | str) -> "Result":
        """Read a line; raise if it is no result, or of another schema or identity."""
        try:
            read = _LINES.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidInput(_why_not(line, error)) from error
        if read.id != read.trial.key:
            raise InvalidInput(f"id {read.id!r} given; its trial has {read.key!r}.")
        if (read.status == "ok") is not read.ok:
            raise InvalidInput(
                f"status {read.status!r} given; expected 'ok' without an error or "
                "'failed' with one."
            )
        if read.ok and read.test_accuracy is None and read.detection is None:
            raise InvalidInput("no test_accuracy given; expected a number.")
        _check_figures(read)
        own = {name: v for name, v in asdict(read).items() if name not in _OTHER}
        return cls(**own)


class _Line(Result, frozen=True, kw_only=True):
    """What is written of a result: beside it, what tells that it is one."""

    schema: Literal[3]
    id: Name
    status: Literal["ok", "failed"]


_LINES = msgspec.json.Decoder(_Line)
_OTHER = ("schema", "id", "status")


class _Head(msgspec.Struct):
    schema: Any = None


def _why_not(line: bytes | str, error: Exception) -> str:
    """Say what is wrong with a line, first of all whether it is of another schema."""
    if isinstance(error, RecursionError):
        return "nested too deep; expected a result."
    if not isinstance(error, msgspec.ValidationError):
        return f"not JSON ({escaped(str(error), longest=300)}); expected a result."
    try:
        found = msgspec.json.decode(line, type=_Head).schema
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = None
    if type(found) is int and 0 < found < SCHEMA:
        return (
            f"schema {found} given; expected {SCHEMA}: `gsebo results migrate` brings "
            "it up to date."
        )
    if found != SCHEMA:
        shown = escaped(repr(found), longest=50)
        return f"schema {shown} given; expected {SCHEMA}."
    return f"{escaped(str(error), longest=300)}."


def _check_figures(result: Result) -> None:
    """Raise unless figures that belong together go together."""
    noise = result.trial.noise
    if isinstance(noise, str) and noise_spec(noise) != noise:
        raise InvalidInput(f"noise {noise!r} given; expected {noise_spec(noise)!r}.")
    if result.test is not None and result.test.get("accuracy") != result.test_accuracy:
        raise InvalidInput(
            f"test_accuracy {result.test_accuracy} given beside another accuracy in "
            "test; expected the same."
        )
    if result.curves is not None:
        lengths = {len(cast(list[float], one)) for one in result.curves.values()}
        if len(lengths) > 1:
            raise InvalidInput(
                "curves of different lengths given; expected one length."
            )
    for layer in result.edges or ():
        for name, group in layer.items():
            empty = not any(group["histogram"])
            if empty is not (group["mean"] is None) or group["zero"] > group["count"]:
                raise InvalidInput(
                    f"edges {name!r} given whose count, mean and bars contradict each "
                    "other; expected those of one group."
                )
