"""The stored results that came with the package: an archive that is only ever read.

The build of the package puts it there, with the files of ``results/`` as they are; in a
source tree there is none. What a user stores is in a folder of its own, a
:class:`~gsebo.experiments.store.Store`, and both are never read together.
"""

from pathlib import Path
from typing import final
from zipfile import BadZipFile, ZipFile

from gsebo.errors import InvalidInput
from gsebo.experiments.result import Result
from gsebo.experiments.store import take_lines
from gsebo.files import require_regular

ARCHIVE = Path(__file__).parent / "shipped_results.zip"


@final
class ShippedResults:
    """All results of the archive.

    Args:
        archive: Another archive than that of the package.
    """

    def __init__(self, archive: Path | None = None) -> None:
        self.archive = ARCHIVE if archive is None else archive
        self._known: dict[str, Result] | None = None

    @property
    def present(self) -> bool:
        """Whether there are any: they are put in when the package is built."""
        return self.archive.exists()

    def results(self) -> dict[str, Result]:
        """Every result by the key of its trial; raises if the archive is damaged."""
        if self._known is None:
            self._known = self._read()
        return dict(self._known)

    def _read(self) -> dict[str, Result]:
        require_regular(self.archive, "an archive of results")
        known: dict[str, Result] = {}
        try:
            with ZipFile(self.archive) as archive:
                for name in sorted(archive.namelist()):
                    take_lines(known, archive.read(name))
        except (InvalidInput, BadZipFile, OSError, EOFError) as error:
            raise InvalidInput(
                f"{self.archive} is damaged ({error}); expected the results that came "
                "with gsebo: install it again."
            ) from error
        return known
