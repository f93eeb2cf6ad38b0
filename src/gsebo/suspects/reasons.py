"""Sentences: why an edge is suspicious, and what the whole list says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import numpy as np

from gsebo.suspects.calibration import Calibration
from gsebo.suspects.networks import UNSURE
from gsebo.suspects.pairs import Ints, Numbers

Words = Callable[[int], str]

# What added less to a score than this, in log-odds, is no reason.
_LEAST = 0.05
_REASONS = 3
_PRECISIONS = (10, 50, 100, 500, 1000)


def shown_evidence(evidence: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Evidence in the units that a reader knows: counts and probabilities."""
    shown: dict[str, Numbers] = {}
    for name, column in evidence.items():
        if name == "common":
            shown["common_neighbors"] = np.expm1(column).round().astype(np.int64)
        elif name in ("agreement", "features_agreement"):
            shown[name] = np.clip(np.exp(column) - UNSURE, 0, 1).round(9)
        elif name == "neighborhoods":
            shown["neighbors_cosine"] = column
        elif name in ("cosine", "learned_weight", "edge_weight"):
            shown[name] = column
    return shown


@final
class Reasons:
    """Says of each pair what speaks against its edge most.

    Args:
        shown: What :func:`shown_evidence` makes of the evidence.
        parts: What each column has added to the score, ``[pairs]``.
        classes: Name of the class of both ends, known or predicted, ``[pairs, 2]``.
        known: Whether the class of each node of a pair is known, ``[pairs, 2]``.
    """

    def __init__(
        self,
        shown: Mapping[str, Numbers],
        parts: Mapping[str, Numbers],
        classes: Ints | None,
        known: Ints | None,
    ) -> None:
        self._shown, self._classes, self._known = shown, classes, known
        words: dict[str, tuple[tuple[str, ...], Words]] = {
            "agreement": (("agreement",), self._agreement),
            "features_agreement": (("features_agreement",), self._features_agreement),
            "cosine": (("cosine", "rarity"), self._cosine),
            "neighbors": (
                ("one_neighborhood", "other_neighborhood", "neighborhoods"),
                lambda pair: "neither resembles the neighbors of the other",
            ),
            "common": (("common", "allocation"), self._common),
            "learned_weight": (
                ("learned_weight",),
                lambda pair: (
                    f"learned weight {self._shown['learned_weight'][pair]:.2f}"
                ),
            ),
        }
        self._words, added = [], []
        for columns, say in words.values():
            found = [parts[name] for name in columns if name in parts]
            if found:
                self._words.append(say)
                added.append(np.sum(found, axis=0))
        given = [parts[name] for name in parts if name.startswith("edge_")]
        if given:
            self._words.append(lambda pair: "what is given of the edge itself")
            added.append(np.sum(given, axis=0))
        self._added = np.stack(added, axis=1)

    def __call__(self, pair: int) -> str:
        """One sentence, the strongest reason first."""
        added = self._added[pair]
        order = np.argsort(-added)[:_REASONS]
        said = [self._words[one](pair) for one in order if added[one] > _LEAST]
        if not said:
            return "Nothing speaks against it."
        text = "; ".join(said)
        return f"{text[0].upper()}{text[1:]}."

    def _agreement(self, pair: int) -> str:
        assert self._classes is not None and self._known is not None
        one, other = self._classes[pair]
        if one == other:
            return "the network is not sure that both are of one class"
        known = self._known[pair]
        if known.all():
            return f"labelled {one} and {other}"
        return f"probably {one} and {other}"

    def _features_agreement(self, pair: int) -> str:
        share = self._shown["features_agreement"][pair]
        return f"by features of one class with probability {share:.2f}"

    def _cosine(self, pair: int) -> str:
        cosine = self._shown["cosine"][pair]
        much = "nothing" if cosine <= 0 else "little"
        return f"features have {much} in common (cosine {cosine:.2f})"

    def _common(self, pair: int) -> str:
        count = int(self._shown["common_neighbors"][pair])
        if not count:
            return "no common neighbor"
        return f"only {count} common neighbor{'s' * (count > 1)}"


def summary(calibration: Calibration, told_by: str) -> tuple[str, ...]:
    """What the list says in all, in sentences, the most important first."""
    edges = len(calibration.probability)
    if not calibration.tells:
        told = f"area under ROC {calibration.found:.2f}"
        if calibration.is_hardly_told:
            return (
                "Edges that were planted at random are hardly told from the given ones "
                f"({told}): {told_by} says too little of this graph to name wrong "
                "edges, and the order of the list means little.",
            )
        return (
            "How many edges are wrong cannot be told: too many of the given ones look "
            f"like planted ones to {told_by} ({told}); the order of the list is all "
            "there is.",
        )
    mean, low, high = calibration.number
    sure = f"{low:.0f} to {high:.0f}" if round(low) < round(high) else f"{mean:.0f}"
    first = [one for one in _PRECISIONS if one <= edges]
    found: list[str] = []
    looks_clean = mean < 0.5 or calibration.of_first(min(10, edges))[0] < 0.5
    if looks_clean:
        found.append(
            "Nothing looks wrong: no edge is more likely wrong than right."
            if low < 0.5
            else "Few edges look wrong, and none of them for sure."
        )
    found.append(
        f"Of {edges:,} edges {mean:,.0f} are expected to be wrong ({sure}), by how "
        f"planted false edges compare; {told_by} tells those from given ones with area "
        f"under ROC {calibration.found:.2f}."
    )
    for count in first if not looks_clean else first[:1]:
        share, least, most = calibration.of_first(count)
        spread = max(share - least, most - share) * count
        found.append(
            f"Of the first {count:,}, {share * count:.0f} ± {spread:.0f} are expected "
            "to be wrong."
        )
    return tuple(found)
