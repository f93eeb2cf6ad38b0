"""The graph of a trial."""

from pathlib import Path

from torch_geometric.data import Data

from gsebo.data import DATASETS, apply_noise, apply_split, load
from gsebo.data.splits import is_drawn
from gsebo.experiments.trial import Trial
from gsebo.lookup import lookup

_HALVES = "halves"
_PARTS = ("unseen", "seen")


def full_split_name(dataset: str, split: str | None) -> str:
    """Name of a split with everything that it depends on spelt out.

    Args:
        dataset: Name of a registered dataset.
        split: ``None`` for the dataset's own, or ``"halves"`` for its own with
            validation halved, or ``"unseen:20"`` or ``"seen:20"`` for a part of its own
            test nodes, or the name of any split.
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


def trial_graph(trial: Trial, data_dir: Path | None = None) -> Data:
    """Load the graph, split it, and add noise where the trial has some."""
    data = load(trial.dataset, data_dir=data_dir)
    data = apply_split(data, trial.split, trial.seed)
    if trial.noise:
        data = apply_noise(data, trial.noise, seed=trial.seed)
    return data


def same_graph_for_all_seeds(trial: Trial) -> bool:
    """Whether trials that differ from this by their seeds alone have the same graph."""
    return not trial.noise and not is_drawn(trial.split)
