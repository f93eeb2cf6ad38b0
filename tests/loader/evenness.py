"""How likely counts are if everything is drawn alike."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc


def chance_of(counts: ArrayLike) -> float:
    """Probability that even draws are at least that uneven, by the chi-square test.

    Not by scipy.stats, which takes the folder tests/sparse for a package of that name.
    """
    found = np.asarray(counts, np.float64)
    statistic = ((found - found.mean()) ** 2).sum() / found.mean()
    return float(chdtrc(found.size - 1, statistic))
