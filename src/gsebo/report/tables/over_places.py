"""What is said below tables of accuracies: what marks mean, and a test over places."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean

from gsebo.data import DATASETS
from gsebo.experiments import Cell
from gsebo.experiments.recipe import DeclaredControl
from gsebo.report.formats import MARKS
from gsebo.report.names import backbone_title, method_title
from gsebo.report.tables.entry import Entry
from gsebo.report.tables.significance import (
    FEWEST_PLACES,
    FEWEST_SEEDS,
    REFERENCE,
    SIGNIFICANT,
    control_of,
    corrected_p_values,
    is_reference,
    learns_from_val,
    signed_rank_p_value,
)
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Table,
    Value,
    Verdict,
    lay_out,
)

_OVER_PLACES = (
    "The test over networks and graphs is made of those with at least "
    f"{FEWEST_SEEDS} seeds of both, and where there are {FEWEST_PLACES} or more."
)
_Compared = tuple[str, str, str, str, tuple[str, str] | None]


@dataclass(frozen=True)
class PlaceTest:
    """A method and its control over all networks and graphs that have both."""

    method: str
    setting: str
    control: str
    control_setting: str
    # Its network and the control's, where they are not the same everywhere.
    networks: tuple[str, str] | None
    # Means less those of the control, in points, one for each network and graph.
    differences: tuple[float, ...]
    p: float
    corrected: float

    def record(self) -> dict[str, object]:
        """For programs."""
        return {
            "method": self.method,
            "setting": self.setting,
            "control": self.control,
            "control_setting": self.control_setting,
            "networks": self.networks,
            "places": len(self.differences),
            "above": sum(one > 0 for one in self.differences),
            "mean_difference": mean(self.differences),
            "p": self.p,
            "p_corrected": self.corrected,
        }


def place_tests(found: Mapping[Cell, Entry]) -> list[PlaceTest]:
    """Wilcoxon's test of the means of every method that has enough places.

    A place is a network and a graph as it is: levels of noise and budgets of an attack
    are no further graphs. It counts if it has enough seeds for a test of its own. What
    is compared with a control on another network is tested for each network.
    """
    pairs: dict[_Compared, list[float]] = {}
    for cell, entry in found.items():
        control = entry.comparison.control
        if control is None or entry.comparison.p is None:
            continue
        if cell.noise or DATASETS[cell.dataset].family:
            continue
        ours, theirs = entry.ours, found[control].ours
        if ours is not None and theirs is not None:
            networks = (cell.row, control.row) if cell.row != control.row else None
            words = (cell.method, cell.setting, control.method, control.setting)
            pairs.setdefault((*words, networks), []).append(ours.mean - theirs.mean)
    kept = {key: each for key, each in pairs.items() if len(each) >= FEWEST_PLACES}
    p_values = [signed_rank_p_value(each) for each in kept.values()]
    return [
        PlaceTest(*key, tuple(differences), p, corrected)
        for (key, differences), p, corrected in zip(
            kept.items(), p_values, corrected_p_values(p_values), strict=True
        )
    ]


def place_table(tests: Iterable[PlaceTest]) -> Table | None:
    """Lay out these tests; ``None`` where there is none."""
    groups = {
        name: ColumnGroup(name)
        for name in ("against", "places", "above in", "difference", "p", "corrected")
    }
    lines = []
    for one in tests:
        method, against = one.method, _in_words(one.control, one.control_setting)
        if one.networks is not None:
            own, other = map(backbone_title, one.networks)
            against = f"{against} on {other}"
            if method_title(method) != own:
                method = f"{method_title(method)} on {own}"
        line: dict[str, list[Content]] = {
            "against": [against],
            "places": [str(len(one.differences))],
            "above in": [str(sum(each > 0 for each in one.differences))],
            "difference": [Value(mean(one.differences), signed=True)],
            "p": [_probability(one.p)],
            "corrected": [_probability(one.corrected)],
        }
        lines.append(((method, one.setting), line))
    if not lines:
        return None
    title = (
        "Over networks and graphs: mean difference from the control, and p of "
        "Wilcoxon's signed-rank test"
    )
    return lay_out(title, ("method", "setting"), groups, lines)


def place_notes(tests: Iterable[PlaceTest]) -> tuple[str, ...]:
    """Say which networks and graphs these tests are made of."""
    return (_OVER_PLACES,) if any(tests) else ()


def mark_notes(
    found: Iterable[Entry], declared: DeclaredControl | None
) -> tuple[str, ...]:
    """Say what the marks of a table mean, and what was compared with what."""
    shown = list(found)
    tests = sum(entry.comparison.p is not None for entry in shown)
    verdicts = {entry.comparison.verdict for entry in shown}
    if not verdicts - {None}:
        return ()
    none_equal = "there is no control with equal labels here"
    if not tests:
        return (
            f"Nothing is tested: {none_equal}, or fewer than {FEWEST_SEEDS} seeds.",
        )
    meanings: dict[Verdict, str] = {
        "better": "significantly more accurate than the control",
        "worse": "significantly less",
        "same": "no significant difference",
        "untested": f"not tested, for {none_equal}, or fewer than {FEWEST_SEEDS} "
        "seeds of both",
    }
    words = [f"{MARKS[verdict]} {text}" for verdict, text in meanings.items()]
    number = "the one test" if tests == 1 else f"the {tests} tests"
    return (
        f"{'; '.join(words)}; no mark: a control. Two-sided paired permutation test "
        f"over seeds, p < {SIGNIFICANT} after Benjamini and Hochberg's correction for "
        f"{number} here.",
        _said_of_controls(shown, declared),
    )


def _said_of_controls(shown: list[Entry], declared: DeclaredControl | None) -> str:
    rich = {e.cell.method for e in shown if learns_from_val(e.cell)}
    poor = (e.cell for e in shown if not learns_from_val(e.cell))
    plain = {cell.method for cell in poor if not is_reference(cell)}
    if declared is not None:
        alike = [e.cell for e in shown if e.cell.method == declared.method]
        # A control is its own.
        if alike and all(control_of(c, (c,), declared) == c for c in alike):
            rich.remove(declared.method)
    sentences = []
    if rich and declared is None:
        sentences.append(
            f"{_listed(rich)}: learn from the validation labels too, and nothing here "
            "has as many labels and no structure to learn."
        )
    elif rich and declared is not None:
        sentences.append(
            f"Control of what learns from the validation labels too ({_listed(rich)}): "
            f"{_in_words(declared.method, declared.setting)}{_on(declared)}"
            f"{_with_own_words(shown, rich, declared.setting)}."
        )
    if plain:
        sentences.append(
            f"Control of what learns from the training labels alone ({_listed(plain)}):"
            f" {REFERENCE}{_on(declared)}{_with_own_words(shown, plain)}."
        )
    return " ".join(sentences)


def _with_own_words(
    shown: list[Entry], compared: Collection[str], setting: str = ""
) -> str:
    """Whether methods are compared with a control that has a setting beside its own."""
    controls = (e.comparison.control for e in shown if e.cell.method in compared)
    if {control.setting for control in controls if control is not None} <= {setting}:
        return ""
    return ", with the same setting where there is one"


def _on(declared: DeclaredControl | None) -> str:
    if declared is None or declared.backbone is None:
        return " on the same network"
    return f" on {backbone_title(declared.backbone)}"


def _listed(methods: Iterable[str]) -> str:
    return ", ".join(sorted(map(method_title, methods), key=str.lower))


def _in_words(method: str, setting: str) -> str:
    return f"{method_title(method)} ({setting})" if setting else method_title(method)


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
