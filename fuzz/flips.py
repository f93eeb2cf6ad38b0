"""Any single byte of any file of saved models and graph folders."""

from pathlib import Path
from typing import Any, final

from hypothesis import strategies as st
from tests.data.folder.tampering import everything as everything_of_folder
from tests.methods.saved import everything, same
from tests.methods.test_persistence_damage import KINDS

from fuzz.damage import flipped
from fuzz.folders import write_folders
from fuzz.models import write_models
from fuzz.target import Draw, Originals, Target, require
from gsebo import load_model


@final
class Flips(Target):
    """One byte is another one: refused, or nothing that is read has changed."""

    name, share = "flips", 3

    def prepare(self, folder: Path) -> None:
        """Write folders and save models of all kinds."""
        write_folders(folder)
        write_models(folder, tuple(KINDS))

    def begin(self, folder: Path) -> None:
        """Read them."""
        self._originals = Originals(folder)
        self._whole = {
            kind: self._read(kind, path)
            for kind, path in self._originals.folders.items()
        }

    def draw(self, draw: Draw) -> Any:
        """Draw a thing, a file of it, and which byte is what."""
        kind = draw(st.sampled_from(sorted(self._originals.files)))
        files = self._originals.files[kind]
        file = draw(st.sampled_from(sorted(files)))
        return kind, file, flipped(draw, files[file])

    def write(self, case: Any, place: Path) -> None:
        """Write it with the byte changed."""
        kind, file, content = case
        (self._originals.copy(kind, place) / file).write_bytes(content)

    def read(self, case: Any, place: Path) -> None:
        """Read all of it."""
        kind = case[0]
        found, whole = self._read(kind, place / "copy"), self._whole[kind]
        alike = same(found, whole) if kind in KINDS else found == whole
        require(alike, "what was written")

    def _read(self, kind: str, path: Path) -> Any:
        if kind in KINDS:
            return everything(load_model(path))
        return everything_of_folder(path)
