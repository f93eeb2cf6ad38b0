"""How a cost grows: the x of ``seconds ~ edges ** x``."""

import numpy as np


def fit_exponent(edges: list[float], seconds: list[float]) -> float:
    """Slope of the straight line through the logarithms, by least squares.

    >>> round(fit_exponent([10, 100, 1000], [2, 20, 200]), 3)
    1.0
    """
    if len(edges) < 2:
        raise ValueError(f"{len(edges)} points given, expected at least 2.")
    slope, _ = np.polyfit(np.log(edges), np.log(seconds), 1)
    return float(slope)
