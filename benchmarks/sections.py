"""What the report says of each benchmark, from its stored lines only."""

from collections.abc import Sequence

from benchmarks.growth import exponents
from benchmarks.markdown import (
    MISSING,
    Line,
    distinct,
    latest,
    measured,
    megabytes,
    number,
    pivot,
    ratio,
    table,
)
from benchmarks.packages import CONTENDERS, OURS, PEERS, PLAIN, TITLES

# Between these sizes the exponent is fitted.
_CPU_RANGE, _GPU_RANGE = (1e5, 1e7), (1e6, 1e8)


def equality(lines: Sequence[Line]) -> str:
    """Errors of the hypergradients."""
    keys = ("dataset", "backbone", "hidden", "tau", "optimizer", "weight_decay", "who")
    lines = latest(lines, keys)
    rows = ("optimizer", "weight_decay", "who")
    lines = [_titled(line) for line in lines]
    peers = [line for line in lines if line["who"] != OURS]

    def errors(chosen: Sequence[Line], key: str) -> str:
        def cell(line: Line) -> str:
            return number(line[key], 2) if line.get("finite", True) else "**NaN**"

        return pivot(chosen, rows, "backbone", cell)

    return "\n\n".join(
        [
            "Relative error of the hypergradient against central finite differences of "
            "training with `torch.optim`, along random directions:",
            errors(lines, "error"),
            "Against finite differences of the peer's own training. Small here and "
            "large above: it differentiates another optimiser than torch's.",
            errors(peers, "error_of_own_training"),
            "Relative distance from ours, number by number:",
            errors(peers, "difference_to_ours"),
        ]
    )


def timing(lines: Sequence[Line]) -> str:
    """Milliseconds and memory of one outer step."""
    case = ("dataset", "backbone", "hidden", "tau", "device")
    lines = latest(lines, (*case, "who"))
    rows = []
    for name in distinct(tuple(line[key] for key in case) for line in lines):
        by_who = {
            line["who"]: line
            for line in lines
            if tuple(line[key] for key in case) == name
        }
        ours = by_who.get(OURS, {})
        rows.append(
            [
                *map(str, name),
                *(
                    measured(by_who.get(w), "milliseconds_per_inner_step")
                    for w in CONTENDERS
                ),
                ratio(by_who.get(PLAIN, {}).get("times_slower_than_ours")),
                ratio(ours.get("times_faster_than_faster_peer")),
                number(ours.get("kernel_milliseconds_per_inner_step")),
                *(megabytes(by_who.get(w, {}).get("peak_bytes")) for w in CONTENDERS),
            ]
        )
    shown = [TITLES.get(w, w) for w in CONTENDERS]
    heads = [
        *case,
        *(f"{w}, ms" for w in shown),
        "plain torch / ours",
        "faster library / ours",
        "our kernels, ms",
        *(f"{w}, MB" for w in shown),
    ]
    parts = [
        "Milliseconds per inner step with its share of the outer step, median of the "
        "rounds; the ratio of each round as median (least); peak memory of building "
        "and one outer step, above the running process.",
        table(heads, rows),
    ]
    disturbed = sum(_was_disturbed(line) for line in lines)
    if disturbed:
        parts.append(
            f"Other work took part of a core during {disturbed} of {len(lines)} "
            "measurements."
        )
    return "\n\n".join(parts)


def fit(lines: Sequence[Line]) -> str:
    """Seconds of a whole fit."""
    case = ("device", "dataset", "backbone", "hidden", "tau", "outer_steps")
    lines = latest(lines, (*case, "who"))

    def cell(line: Line) -> str:
        slower = line.get("times_slower_than_ours")
        suffix = "" if slower is None else f" ({ratio(slower)} times ours)"
        return measured(line, "seconds") + suffix

    # The contenders in the order that all tables have.
    lines = sorted(lines, key=lambda line: CONTENDERS.index(line["who"]))
    shown = [_titled(line) for line in lines]
    return "Seconds, median of the rounds:\n\n" + pivot(shown, case, "who", cell)


def memory(lines: Sequence[Line]) -> str:
    """Peak above idle by the number of inner steps."""
    keys = ("dataset", "backbone", "hidden", "who", "start", "tau")
    lines = latest(lines, keys)
    case = ("dataset", "backbone", "hidden", "start")

    def above_idle(line: Line) -> int:
        return int(line["peak_bytes"] - line["idle_bytes"])

    parts = [
        "MB above the idle process, by tau:",
        pivot(
            [_titled(line) for line in lines],
            (*case, "who"),
            "tau",
            lambda line: megabytes(above_idle(line)),
        ),
    ]
    for name in distinct(tuple(line[key] for key in case) for line in lines):
        here = {
            (line["who"], line["tau"]): above_idle(line)
            for line in lines
            if tuple(line[key] for key in case) == name
        }
        taus = sorted(tau for who, tau in here if who == OURS)
        if not taus:
            continue
        growth = here[OURS, taus[-1]] / here[OURS, taus[0]]
        said = [f"ours grows by a factor of {number(growth)} from tau {taus[0]} to "]
        said[0] += f"{taus[-1]}"
        for tau in taus:
            said += [
                f"{TITLES.get(peer, peer)} / ours at tau {tau}: "
                f"{number(here[peer, tau] / here[OURS, tau])}"
                for peer in PEERS
                if (peer, tau) in here
            ]
        parts.append(f"- {', '.join(map(str, name))}: {'; '.join(said)}.")
    return "\n\n".join(parts)


def replicas(lines: Sequence[Line]) -> str:
    """Seconds of several fits at once."""
    keys = ("device", "dataset", "backbone", "hidden", "tau", "outer_steps", "replicas")
    rows = [
        [
            *(str(line[key]) for key in keys),
            number(line["seconds_of_one"]),
            number(line["seconds_of_all"]),
            ratio(line["times_one"]),
        ]
        for line in latest(lines, keys)
    ]
    heads = [key.replace("_", " ") for key in keys]
    return table([*heads, "one, s", "all at once, s", "all / one"], rows)


def methods(lines: Sequence[Line]) -> str:
    """Seconds of whole fits, and how often a fit of GSEBO would fit in."""
    keys = ("device", "dataset", "nodes", "edges", "who", "seeds")
    rows = [
        [
            *(str(line[key]) for key in keys),
            str(line["cores"]),
            number(line["seconds"]),
            number(line["processor_seconds"]),
            ratio(line["times_gsebo"]),
            ratio(line["times_gsebo_by_processor"]),
        ]
        for line in latest(lines, keys)
    ]
    heads = [*keys, "cores", "s", "processor, s", "times GSEBO", "by processor time"]
    return "\n\n".join(
        [
            "Every estimator has its defaults and stops by itself. `Auto` has networks "
            "of width 64, the others of width 16. Ratios as median (least to largest) "
            "of the rounds.",
            table(heads, rows),
        ]
    )


def scale(lines: Sequence[Line]) -> str:
    """Milliseconds by the number of edges, and the exponents."""
    case = ("device", "backbone", "hidden", "features", "tau", "degree")
    # Before there was a peer, all lines were ours and none said so.
    lines = [{"who": OURS, **line} for line in lines]
    size = (*case, "requested_edges")
    lines = latest(lines, (*size, "who"))
    rows = []
    for name in distinct(tuple(line[key] for key in size) for line in lines):
        here = [line for line in lines if tuple(line[key] for key in size) == name]
        by_who = {line["who"]: line for line in here}
        both = [by_who.get(who) for who in (OURS, PLAIN)]
        rows.append(
            [
                *map(str, name[:-1]),
                *(_first(here, key) for key in ("nodes", "edges")),
                *(measured(line, "milliseconds") for line in both),
                _quotient(both[1], both[0], "milliseconds"),
                *(megabytes((line or {}).get("peak_bytes")) for line in both),
            ]
        )
    heads = [*case, "nodes", "edges", "ours, ms", "plain torch, ms"]
    heads += ["plain torch / ours", "ours, MB", "plain torch, MB"]
    parts = ["One outer step on power-law graphs, and its peak:", table(heads, rows)]
    for device in distinct(line["device"] for line in lines):
        least, most = _CPU_RANGE if device == "cpu" else _GPU_RANGE
        ours = [
            line for line in lines if line["device"] == device and line["who"] == OURS
        ]
        parts += exponents(ours, case, least, most)
    return "\n\n".join(parts)


def operators(lines: Sequence[Line]) -> str:
    """Milliseconds of each operator beside the floor."""
    case = ("nodes", "edges", "channels", "batch", "operator")
    rows = [
        [
            *(str(line[key]) for key in case),
            number(line["milliseconds"]),
            number(line["floor_milliseconds"]),
            number(line["ratio"]),
        ]
        for line in latest(lines, (*case, "device"))
    ]
    return "\n\n".join(
        [
            "The floor is the bytes that have to be moved at 4.3 TB/s; single numbers "
            "that lie scattered count as the 32 bytes of a memory sector.",
            table([*case, "ms", "floor, ms", "ratio"], rows),
        ]
    )


def _titled(line: Line) -> Line:
    """The same with the contender's name as tables have it."""
    return {**line, "who": TITLES.get(line["who"], line["who"])}


def _first(lines: Sequence[Line], key: str) -> str:
    """What the first line says that has it: a graph that fits has its sizes."""
    return next((str(line[key]) for line in lines if key in line), MISSING)


def _quotient(above: Line | None, below: Line | None, key: str) -> str:
    if above is None or below is None or key not in above or key not in below:
        return MISSING
    return number(above[key] / below[key])


def _was_disturbed(line: Line) -> bool:
    """Whether the process got less than nine tenths of one core of its own."""
    used = line.get("processor_milliseconds_per_inner_step")
    if used is None or line["device"] != "cpu":
        return False
    return bool(used < 0.9 * line["milliseconds_per_inner_step"])
