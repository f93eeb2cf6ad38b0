"""When, where and with what stored results were made."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gsebo.experiments import Result


@dataclass(frozen=True)
class Provenance:
    """Facts about results.

    Attributes:
        finished: Number of trials that came to their end.
        failed: Number of those that did not.
        days: First and last day, as ``2026-11-15``, or none where nothing is noted.
        hours: For all fits together.
        devices: Number of trials by the device that they ran on, most first.
        versions: Versions of each library, one or several.
    """

    finished: int
    failed: int
    days: tuple[str, ...]
    hours: float
    devices: dict[str, int]
    versions: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, results: Iterable[Result]) -> "Provenance":
        """Of some results."""
        known = list(results)
        days = sorted({one.finished[:10] for one in known if one.finished})
        versions: dict[str, set[str]] = {}
        for result in known:
            for library, version in result.versions.items():
                versions.setdefault(library, set()).add(version)
        return cls(
            finished=sum(result.ok for result in known),
            failed=sum(not result.ok for result in known),
            days=tuple(dict.fromkeys((days[0], days[-1]) if days else ())),
            hours=sum(result.seconds or 0 for result in known) / 3600,
            # Of equally many the order of the alphabet, not that of the files.
            devices=dict(
                Counter(sorted(result.device for result in known)).most_common()
            ),
            versions={name: tuple(sorted(found)) for name, found in versions.items()},
        )
