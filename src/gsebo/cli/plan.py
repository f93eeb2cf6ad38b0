"""What a user asked to be fitted, before anything was looked up."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """The options that ``fit`` and ``compare`` share.

    Attributes:
        dataset: Registered name or path.
        backbone: Name of the network, if it was given.
        preset: Name of a set of parameters, if any.
        settings: ``name=value`` of each ``--set``.
        seed: First seed.
        seeds: Number of seeds, if it was given.
        split: Name of the split, if it was given.
        noise: Number of inter-class edges to add, or ``KIND:LEVEL`` of other noise.
        data_dir: Where to look for datasets first.
        normalize: Whether to normalise features; ``None`` follows the dataset.
        device: Where to compute.
    """

    dataset: str
    backbone: str | None
    preset: str | None
    settings: tuple[str, ...]
    seed: int
    seeds: int | None
    split: str | None
    noise: int | str
    data_dir: Path | None
    normalize: bool | None
    device: str

    @property
    def all_seeds(self) -> list[int]:
        """Every seed to run."""
        return list(range(self.seed, self.seed + (self.seeds or 1)))
