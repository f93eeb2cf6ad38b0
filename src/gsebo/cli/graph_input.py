"""The graph of a run: loaded once, then split and disturbed by the run's seed."""

from pathlib import Path
from typing import final

import torch
from torch_geometric.data import Data

from gsebo.cli.output import messages
from gsebo.cli.plan import Plan
from gsebo.data import (
    DATASETS,
    GENERATED,
    apply_noise,
    apply_split,
    load,
    save_npz,
    validate,
)
from gsebo.lookup import normalise

_MASKS = ("train_mask", "val_mask", "test_mask")
_RANDOM = "random:10/20/70"


@final
class GraphInput:
    """A graph by name or path, and which of its nodes are for what.

    Attributes:
        name: Registered name, or the path as given.
        split: Name of the split that is used.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._data = load(
            plan.dataset, data_dir=plan.data_dir, normalize=plan.normalize
        )
        registered = normalise(plan.dataset) in {**DATASETS, **GENERATED}
        path = Path(plan.dataset)
        self._is_file = path.suffix == ".npz" or path.is_file() or not registered
        self.name = plan.dataset if self._is_file else normalise(plan.dataset)
        self.split = plan.split or self._default_split()

    def for_seed(self, seed: int) -> Data:
        """Return the graph of the run with this seed."""
        data = apply_split(self._data, self.split, seed)
        if self._plan.noise:
            # Noise takes for granted that edges name existing nodes, and the like.
            validate(data, features_needed=False)
            data = apply_noise(data, self._plan.noise, seed=seed)
        return data

    def is_same_for(self, seeds: list[int]) -> bool:
        """Whether neither the split nor the noise depends on the seed."""
        if self._plan.noise:
            return False
        first, *others = (self.for_seed(seed) for seed in seeds)
        masks = [mask for mask in _MASKS if mask in first]
        return all(
            torch.equal(first[mask], other[mask]) for other in others for mask in masks
        )

    def remember(self, data: Data, folder: Path) -> str:
        """Return where ``predict`` finds the graph of the fit again.

        A graph that is not what its name or path stands for (other masks, edges or
        features) is stored beside the model.
        """
        plan = self._plan
        as_it_is = self.split == "file" and not plan.noise and plan.normalize is None
        if as_it_is:
            return str(Path(self.name).resolve()) if self._is_file else self.name
        path = folder.resolve() / "graph.npz"
        save_npz(data, path)
        return str(path)

    def _default_split(self) -> str:
        if self.name in DATASETS:
            return DATASETS[self.name].default_split
        if any(mask in self._data for mask in _MASKS):
            return "file"
        if "train_masks" in self._data:
            messages.note("The graph came with several splits; using file:0.")
            return "file:0"
        messages.note(
            f"The graph came without masks; using the split {_RANDOM}, by the seed."
        )
        return _RANDOM
