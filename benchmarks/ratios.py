"""Ratios of times that were taken in the same rounds."""

from statistics import median


def per_round_ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """Median and least of ``slow / fast`` over the rounds.

    >>> per_round_ratio([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])
    {'median': 3.0, 'min': 2.0}
    """
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return {"median": median(ratios), "min": min(ratios)}


def range_of_ratios(ours: list[float], others: list[float]) -> dict[str, float]:
    """Median, least and largest of ``ours / others`` over the rounds.

    >>> range_of_ratios([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])
    {'median': 3.0, 'min': 2.0, 'max': 4.0}
    """
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    return {**per_round_ratio(ours, others), "max": max(ratios)}


def faster_of_each_round(peers: list[list[float]]) -> list[float]:
    """The best time of any peer in each round."""
    return [min(times) for times in zip(*peers, strict=True)]
