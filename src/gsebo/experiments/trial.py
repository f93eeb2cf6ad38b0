"""One fit that is to be made, and what makes two of them the same."""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from gsebo.data import NoiseSpec, noise_in_words
from gsebo.errors import InvalidInput


@dataclass(frozen=True)
class Trial:
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

    method: str
    backbone: str
    dataset: str
    split: str
    seed: int
    noise: NoiseSpec = 0
    parameters: dict[str, Any] = field(default_factory=dict)
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
        # Not `asdict`, whose deep copies take most of the time of planning.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Trial":
        """Read what :meth:`to_json` gave.

        Raises:
            InvalidInput: It is no description of a trial.
        """
        kinds = {one.name: _KINDS[one.name] for one in fields(cls)}
        if not isinstance(content, dict) or set(content) != set(kinds):
            raise InvalidInput(
                f"trial {content!r} given; expected the fields {', '.join(kinds)}."
            )
        for name, kind in kinds.items():
            if type(content[name]) not in kind:
                raise InvalidInput(
                    f"{name} of a trial is {content[name]!r}; expected a value of type "
                    f"{' or '.join(one.__name__ for one in kind)}."
                )
        return cls(**content)

    def __str__(self) -> str:
        words = [self.method, self.backbone, self.dataset, f"seed {self.seed}"]
        if self.noise:
            words.append(noise_in_words(self.noise))
        words += [f"{name}={json.dumps(v)}" for name, v in self.parameters.items()]
        return ", ".join(words)


_KINDS: dict[str, tuple[type, ...]] = {
    "method": (str,),
    "backbone": (str,),
    "dataset": (str,),
    "split": (str,),
    "seed": (int,),
    "noise": (int, str),
    "parameters": (dict,),
    "curves": (bool,),
}
