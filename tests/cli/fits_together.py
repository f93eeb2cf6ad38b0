"""Several fits in one start of torchrun, which costs more than the fits."""

import sys
from functools import cache
from pathlib import Path

from gsebo import GSEBO, Amortised
from gsebo.data import load
from gsebo.files import write_tensors
from gsebo.methods import GraphClassifier
from gsebo.training.distributed import launched

IN_SHARES = "_in_shares"
FITS = ("gsebo", "amortised", f"amortised{IN_SHARES}")


@cache
def fitted(name: str) -> GraphClassifier:
    options = {
        "batch_size": 64,
        "batches_per_step": 4,
        "max_outer_steps": 5,
        "inner_steps": 5,
        "random_state": 0,
        "device": "cpu",
    }
    data = load("cora")
    if name == "gsebo":
        return GSEBO(**options).fit(data)
    shard = name.endswith(IN_SHARES)
    return Amortised(**options, shard_strengths=shard, refit_epochs=20).fit(data)


if __name__ == "__main__":
    place = launched()
    assert place is not None
    for name in FITS:
        model = fitted(name)
        if place.rank == 0:
            tensors = {
                "strength_": model.strength_,
                "probability_": model.probability_,
            }
            path = Path(sys.argv[1]) / f"{name}.safetensors"
            write_tensors(path, tensors, {})
