"""Every step of a fit in TensorBoard: ``tensorboard --logdir runs`` shows it."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch

import gsebo


def to_tensorboard(writer: Any) -> Callable[[Any, torch.Tensor], None]:
    """A watcher that writes what each step of a fit came to."""

    def watch(record: Any, logits: torch.Tensor) -> None:
        writer.add_scalar("loss/train", record.train_loss, record.step)
        writer.add_scalar("loss/validation", record.val_loss, record.step)
        writer.add_scalar("accuracy/train", record.train_accuracy, record.step)
        writer.add_scalar("accuracy/validation", record.val_accuracy, record.step)
        if record.changed_edges is not None:
            writer.add_scalar("edges/changed", record.changed_edges, record.step)
        writer.add_histogram("probability", logits.softmax(-1).amax(-1), record.step)

    return watch


def main() -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("This example needs TensorBoard: pip install tensorboard")
        return
    data = gsebo.generate_graph(300, num_classes=3, homophily=0.6, seed=0)
    with SummaryWriter(tempfile.mkdtemp(prefix="runs-")) as writer:
        model = gsebo.GSEBO(max_outer_steps=20, random_state=0)
        model.fit(data, watcher=to_tensorboard(writer))
        print(f"{len(model.history_)} steps are in {writer.log_dir}")


if __name__ == "__main__":
    main()
