"""A folder for files that are needed as long as somebody holds on to it."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import final


@final
class ScratchFolder:
    """A new folder among the system's temporary files; it goes when this object does.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gsebo-"))
        # Files that are still mapped stay readable until they are let go.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
