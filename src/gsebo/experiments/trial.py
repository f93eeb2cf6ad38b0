"""One fit that is to be made, and what makes two of them the same."""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from gsebo.data import noise_in_words
from gsebo.schema import Key, Name, Record, Seed, Value


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
