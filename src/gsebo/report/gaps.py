"""What a table lacks, in sentences."""

from gsebo.report.evidence import Evidence


def gaps(evidence: Evidence, name: str | None = None) -> list[str]:
    """Say how many trials are not stored, and how many failed.

    Args:
        evidence: What is stored.
        name: What ``gsebo run`` knows the recipe by. Without it only numbers are told.
    """
    sentences = []
    if evidence.missing:
        command = f": `gsebo run {name}` runs them" if name else ""
        sentences.append(f"{_missing(evidence)}{command}.")
    if evidence.failed:
        number, first = len(evidence.failed), evidence.failed[0]
        reason = f", the first is {first.trial}: {first.error}" if name else ""
        sentences.append(f"{number} trial{'s' if number > 1 else ''} failed{reason}.")
    sentences += [f"Nothing can be run: {text}" for text in evidence.plan.hopeless]
    return sentences


def _missing(evidence: Evidence) -> str:
    if searched := len({planned.trial.key for planned in evidence.plan.first}):
        search = "of a search that decides what else is run"
        if searched == evidence.missing:
            return f"{searched} trials {search} are not stored"
        return f"{evidence.missing} trials are not stored, {searched} of them {search}"
    total = len({planned.trial.key for planned in evidence.plan.trials})
    return f"{evidence.missing} of {total} trials are not stored"
