"""One fit that is to be made, and what makes two of them the same."""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from gsebo import data
from gsebo.data import DATASETS, noise_in_words
from gsebo.lookup import lookup
from gsebo.schema import Key, Name, Record, Seed, Value


class Trial(Record, frozen=True, dict=True):
    """Everything that the outcome of a fit depends on.

    Where it runs is not part of it: a fit on another device is the same to rounding.
    """

    method: Name
    backbone: Name
    dataset: Name
    split: Name
    seed: Seed  # Of the weights, of the noise, and of a split that is drawn.
    # Number of false edges that are added, or ``KIND:LEVEL`` of other noise.
    noise: Annotated[int, Meta(ge=0, le=10**15)] | Name = 0
    # What differs from the constructor's defaults.
    parameters: dict[Key, Value] = msgspec.field(default_factory=dict)
    curves: bool = False  # Whether every step is recorded, with its test accuracy.

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
