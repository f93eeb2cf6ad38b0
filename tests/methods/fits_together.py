"""Fits that several processes share; every process does all of them."""

from functools import cache
from pathlib import Path

from gsebo import GSEBO, Amortised, generate_graph
from gsebo.distributed import current_group
from gsebo.files import write_tensors
from gsebo.methods import GraphClassifier

IN_SHARES = "_in_shares"
FITS = ("gsebo", "amortised", f"amortised{IN_SHARES}")


@cache
def fitted(name: str) -> GraphClassifier:
    options = {
        "batch_size": 16,
        # One for each of four processes.
        "batches_per_step": 4,
        "max_outer_steps": 5,
        "inner_steps": 2,
        "random_state": 0,
        "device": "cpu",
    }
    # Not from beside other examples: those load PyG, which takes longer than a fit.
    data = generate_graph(
        300, split="random:20/30/50", average_degree=5.0, num_features=8
    )
    if name == "gsebo":
        return GSEBO(**options).fit(data)
    shard = name.endswith(IN_SHARES)
    return Amortised(**options, shard_strengths=shard, refit_epochs=4).fit(data)


def fit_all(folder: str) -> None:
    """Fit, and write down what the first process has found."""
    for name in FITS:
        model = fitted(name)
        if current_group().rank == 0:
            tensors = {
                "strength_": model.strength_,
                "probability_": model.probability_,
            }
            write_tensors(Path(folder) / f"{name}.safetensors", tensors, {})
