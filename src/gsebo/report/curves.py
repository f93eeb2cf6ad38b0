"""Figures of every step, over seeds."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gsebo.experiments import Result

Numbers = NDArray[np.float64]


def mean_curve(
    results: Mapping[int, Result], name: str
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Steps of the weights, and mean and standard deviation of a figure over seeds.

    Args:
        results: By seed; those without curves do not count.
        name: Of the figure, such as ``"train_loss"``.

    Returns:
        As far as the shortest of the curves goes; ``None`` without any.
    """
    curves = [one.curves for one in results.values() if one.curves]
    if not curves:
        return None
    length = min(len(curve["inner_steps"]) for curve in curves)
    steps = np.array(curves[0]["inner_steps"][:length], dtype=np.float64)
    columns = (cast(Mapping[str, list[float]], curve)[name] for curve in curves)
    values = np.array([column[:length] for column in columns])
    spread = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(length)
    return steps, values.mean(axis=0), spread
