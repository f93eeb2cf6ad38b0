"""What the tables say, in sentences whose every figure is computed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import mean

from gsebo.report.evidence import Evidence, edge_groups
from gsebo.report.names import backbone_title, gain_place, published_gain
from gsebo.report.tables.entry import Entry, entries


def findings(known: Mapping[str, Evidence]) -> list[str]:
    """Sum up what is stored, one sentence for each recipe that has enough of it.

    Args:
        known: What is stored, by the name of the recipe.
    """
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
    found = entries(evidence)
    pairs = [
        (entry, entry.vanilla.mean)
        for entry in _of_gsebo(found.values())
        if entry.vanilla is not None
    ]
    gained = [entry.ours.mean - plain for entry, plain in pairs if entry.ours]
    if not gained:
        return None
    better = sum(one > 0 for one in gained)
    sure = [
        one for (entry, _), one in zip(pairs, gained, strict=True) if entry.significant
    ]
    sure_better = sum(one > 0 for one in sure)
    sentence = (
        f"GSEBO is more accurate than the plain network in {better} of {len(gained)} "
        f"places, significantly in {sure_better}, and significantly less accurate in "
        f"{len(sure) - sure_better}; its mean gain is {mean(gained):+.1f} points"
    )
    printed = [
        entry.paper[0] - plain.paper[0]
        for entry, _ in pairs
        if entry.paper
        and (plain := found.get(replace(entry.cell, method="vanilla")))
        and plain.paper
    ]
    return sentence + (f" (paper {mean(printed):+.1f})." if printed else ".")


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
    found = entries(evidence)
    lost = [
        other.ours.mean > entry.ours.mean
        for entry in _of_gsebo(found.values())
        if (other := found.get(replace(entry.cell, method="train_val")))
        and other.ours
        and entry.ours
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
    for entry in _of_gsebo(entries(evidence).values()):
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
    ratios: dict[str, list[float]] = {"within": [], "between": []}
    for cell, results in evidence.results.items():
        groups = edge_groups(results)
        if not cell.noise and ratios.keys() <= groups.keys():
            for name, values in ratios.items():
                values.append(groups[name].ratio.mean)
    if not ratios["within"]:
        return None
    lower = sum(
        between < within
        for within, between in zip(ratios["within"], ratios["between"], strict=True)
    )
    return (
        "Without false edges, edges within classes end at "
        f"{mean(ratios['within']):.3f} times their start on average and edges between "
        f"classes at {mean(ratios['between']):.3f}; the latter are weaker in {lower} "
        f"of {len(ratios['within'])} places."
    )


def _percent(number: float) -> str:
    text = f"{number:+.1f}\N{NO-BREAK SPACE}%"
    return text.replace("-", "\N{MINUS SIGN}")


def _of_gsebo(found: Iterable[Entry]) -> list[Entry]:
    """Entries of GSEBO that are stored, without those of another setting."""
    own = (one for one in found if one.cell.method == "gsebo" and not one.cell.setting)
    return [one for one in own if one.ours]
