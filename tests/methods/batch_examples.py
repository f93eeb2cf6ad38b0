"""Quick estimators that train on batches, and what is compared of their fits."""

from typing import Any

from gsebo import GSEBO
from gsebo.loader import ClusterSampler
from gsebo.methods import Amortised, GraphClassifier

WHOLE: dict[str, Any] = {
    "batch_size": 10**9,
    "sampler": ClusterSampler(num_parts=1),
}
_QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "inner_steps": 3,
    "max_outer_steps": 4,
    "batch_size": 8,
    "device": "cpu",
    "random_state": 0,
}


def gsebo_on_batches(**changes: Any) -> GSEBO:
    return GSEBO(**_QUICK | {"outer_step": "paper", "outer_lr": 0.2} | changes)


def amortised_on_batches(**changes: Any) -> Amortised:
    return Amortised(**_QUICK | {"num_folds": 2, "refit_epochs": 4} | changes)


def losses(model: GraphClassifier) -> list[tuple[float, ...]]:
    """What a history says, but for times and for what only a whole graph knows."""
    return [
        (
            record.step,
            record.inner_steps,
            record.train_loss,
            record.val_loss,
            record.train_accuracy,
            record.val_accuracy,
        )
        for record in model.history_
    ]
