"""Every step of a fit in Weights & Biases, and a fit that ends when time is up."""

import time
from collections.abc import Callable
from typing import Any

import torch

import gsebo


def to_wandb(run: Any) -> Callable[[Any, torch.Tensor], None]:
    """A watcher that logs what each step of a fit came to."""

    def watch(record: Any, logits: torch.Tensor) -> None:
        numbers = {
            "train_loss": record.train_loss,
            "val_loss": record.val_loss,
            "train_accuracy": record.train_accuracy,
            "val_accuracy": record.val_accuracy,
            "changed_edges": record.changed_edges,
        }
        known = {name: each for name, each in numbers.items() if each is not None}
        run.log(known, step=record.step)

    return watch


def no_longer_than(seconds: float) -> Callable[[Any, torch.Tensor], bool]:
    """A watcher that ends a fit, which keeps the best step so far."""
    begun = time.monotonic()
    return lambda record, logits: time.monotonic() - begun > seconds


def main() -> None:
    try:
        import wandb
    except ImportError:
        print("This example needs Weights & Biases: pip install wandb")
        return
    data = gsebo.generate_graph(300, num_classes=3, homophily=0.6, seed=0)
    model = gsebo.GSEBO(max_outer_steps=20, random_state=0)
    # Offline: `wandb sync` sends it when you say so.
    settings = model.get_params()
    with wandb.init(project="gsebo", mode="offline", config=settings) as run:
        model.fit(data, watcher=[to_wandb(run), no_longer_than(60)])
        run.summary["test_accuracy"] = model.score(data)
        print(f"{len(model.history_)} steps are in {run.dir}")


if __name__ == "__main__":
    main()
