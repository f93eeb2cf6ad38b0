"""Sentences about how a time grows with the number of edges."""

from collections.abc import Sequence

from benchmarks.exponent import fit_exponent
from benchmarks.markdown import Line, distinct


def exponents(
    lines: Sequence[Line], case: Sequence[str], least: float, most: float
) -> list[str]:
    """One sentence for each case that was measured at several sizes.

    Args:
        lines: Results with ``edges`` and ``milliseconds`` where there was memory.
        case: Keys that have to agree.
        least: Smallest number of edges, as asked for, that counts.
        most: Largest.
    """
    said = []
    for name in distinct(tuple(line[key] for key in case) for line in lines):
        points = [
            (line["edges"], line["milliseconds"])
            for line in lines
            if tuple(line[key] for key in case) == name
            and "milliseconds" in line
            and least <= line["requested_edges"] <= most
        ]
        if len(points) > 1:
            exponent = fit_exponent(*map(list, zip(*points, strict=True)))
            said.append(
                f"- {', '.join(map(str, name))}: time ~ edges^{exponent:.2f} from "
                f"{min(points)[0]} to {max(points)[0]} edges."
            )
    return said
