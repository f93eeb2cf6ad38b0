"""Puts the stored results into the wheel, as one compressed file.

Whoever installs gsebo can so show every table of its documents. The same results give
the same file, to the byte; an editable installation has ``results/`` itself.
"""

import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZipFile, ZipInfo

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "gsebo/experiments/shipped_results.zip"
_NO_DATE = (2020, 1, 1, 0, 0, 0)


class ShipResults(BuildHookInterface):
    """A step of the build of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the archive and add it to what is packed."""
        self._folder = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        archive = Path(self._folder.name) / "results.zip"
        pack(Path(self.root) / "results", archive)
        build_data["force_include"][str(archive)] = PLACE

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        """Remove the archive, of which the wheel has a copy."""
        self._folder.cleanup()


def pack(folder: Path, archive: Path) -> None:
    """Write all files of results of a folder into an archive."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no results; expected those to ship.")
    with ZipFile(archive, "w") as file:
        for path in paths:
            entry = ZipInfo(path.name, _NO_DATE)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, path.read_bytes(), ZIP_BZIP2, 9)
