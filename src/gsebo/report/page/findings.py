"""What the tables say, in sentences whose every figure is computed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import mean

from gsebo.report.evidence import Evidence, edge_groups
from gsebo.report.names import backbone_title, gain_place, published_gain
from gsebo.report.tables.entry import Entry, entries


def findings(known: Mapping[str, Evidence]) -> list[str]:
    """Sum up what is stored, by recipe, in sentences for all that have enough of it."""
    makers: tuple[tuple[str, Callable[[Evidence], str | None]], ...] = (
        ("table1", _against_vanilla),
        ("table1", _against_paper),
        ("controls", _against_labels),
        ("robustness", _under_noise),
        ("inter_class", _edges),
    )
    said = (make(known[name]) for name, make in makers if name in known)
    return [sentence for sentence in said if sentence]


def _against_vanilla(evidence: Evidence) -> str | None:
    gained, sure, printed = [], [], []
    for entry, plain in _of_gsebo(evidence, beside="vanilla"):
        if entry.ours is None or entry.vanilla is None:
            continue
        gained.append(entry.ours.mean - entry.vanilla.mean)
        if entry.significant:
            sure.append(gained[-1] > 0)
        if entry.paper and plain and plain.paper:
            printed.append(entry.paper[0] - plain.paper[0])
    if not gained:
        return None
    better = sum(one > 0 for one in gained)
    return (
        f"GSEBO is more accurate than the plain network in {better} of {len(gained)} "
        f"places, significantly in {sum(sure)}, and significantly less accurate in "
        f"{len(sure) - sum(sure)}; its mean gain is {mean(gained):+.1f} "
        f"points{f' (paper {mean(printed):+.1f})' if printed else ''}."
    )


def _against_paper(evidence: Evidence) -> str | None:
    differences = [
        abs(entry.difference)
        for entry in entries(evidence).values()
        if entry.difference is not None and not entry.cell.setting
    ]
    if not differences:
        return None
    near = sum(one <= 1 for one in differences)
    return (
        f"Of the {len(differences)} figures of table 1, {near} are within one point of "
        f"the paper's; the mean distance is {mean(differences):.1f} points."
    )


def _against_labels(evidence: Evidence) -> str | None:
    lost = [
        other.ours.mean > entry.ours.mean
        for entry, other in _of_gsebo(evidence, beside="train_val")
        if entry.ours and other and other.ours
    ]
    if not lost:
        return None
    return (
        "The plain network that learns from the validation labels too (train + val) is "
        f"more accurate than GSEBO in {sum(lost)} of {len(lost)} places."
    )


def _under_noise(evidence: Evidence) -> str | None:
    dataset, noise = gain_place()
    parts = []
    for entry, _ in _of_gsebo(evidence):
        here = (entry.cell.dataset, entry.cell.noise) == (dataset, noise)
        if not here or entry.gain is None:
            continue
        paper = published_gain(entry.cell.row)
        beside = "" if paper is None else f" (paper {_percent(paper)})"
        parts.append(f"{backbone_title(entry.cell.row)} {_percent(entry.gain)}{beside}")
    if not parts:
        return None
    return (
        f"With {noise} false edges, GSEBO's gain relative to the plain network is: "
        f"{', '.join(parts)}."
    )


def _edges(evidence: Evidence) -> str | None:
    within, between = [], []
    for cell, results in evidence.results.items():
        groups = edge_groups(results)
        if not cell.noise and {"within", "between"} <= groups.keys():
            within.append(groups["within"].ratio.mean)
            between.append(groups["between"].ratio.mean)
    if not within:
        return None
    lower = sum(b < w for w, b in zip(within, between, strict=True))
    return (
        f"Without false edges, edges within classes end at {mean(within):.3f} times "
        f"their start on average and edges between classes at {mean(between):.3f}; the "
        f"latter are weaker in {lower} of {len(within)} places."
    )


def _percent(number: float) -> str:
    return f"{number:+.1f}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def _of_gsebo(
    evidence: Evidence, beside: str = "vanilla"
) -> list[tuple[Entry, Entry | None]]:
    """Entries of GSEBO that are stored, without those of another setting.

    Beside each, that of another method in the same place.
    """
    found = entries(evidence)
    return [
        (entry, found.get(replace(cell, method=beside)))
        for cell, entry in found.items()
        if cell.method == "gsebo" and not cell.setting and entry.ours
    ]
