"""Write a graph folder in pieces, so that it appears whole or not at all."""

import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from numpy.typing import DTypeLike

from gsebo.data.folder_manifest import MANIFEST, ArrayEntry, Manifest
from gsebo.data.npy_stream import NpyWriter, sha256_of
from gsebo.errors import InvalidInput
from gsebo.version import __version__


@final
class FolderWriter:
    """A folder that is filled under another name and gets its own at the end.

    Used as a context: leaving it after :meth:`finish` renames the folder, leaving it by
    an exception removes everything. A process that is killed leaves at most a folder
    whose name begins with a dot and ends in ``.partial``.

    Args:
        path: The folder to be; nothing may be there yet but an empty folder.

    Attributes:
        scratch: A folder for what is of use during the writing only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser().absolute()
        self._writers: dict[str, NpyWriter] = {}
        self._manifest: Manifest | None = None
        if self._path.exists() and not _is_empty_folder(self._path):
            raise InvalidInput(f"{path} is there already: expected a new name.")
        name = f".{self._path.name}.{secrets.token_hex(4)}.partial"
        self._partial = self._path.parent / name
        self.scratch = self._partial / "scratch"

    def __enter__(self) -> Self:
        try:
            self.scratch.mkdir(parents=True)
        except OSError as error:
            raise self._refused(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._appear()
        except OSError as failure:
            raise self._refused(failure) from failure
        finally:
            for writer in self._writers.values():
                writer.discard()
            # Gone under this name if all went well.
            shutil.rmtree(self._partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise self._refused(error) from error

    def array(
        self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()
    ) -> NpyWriter:
        """Begin an array; what it is given goes to its file at once."""
        writer = NpyWriter(self._partial / f"{name}.npy", dtype, row_shape)
        self._writers[name] = writer
        return writer

    def finish(
        self,
        *,
        num_nodes: int,
        num_features: int,
        num_classes: int | None,
        facts: dict[str, Any],
        classes: tuple[str, ...] | None = None,
    ) -> None:
        """Close the arrays and write the manifest.

        Args:
            num_nodes: Number of nodes.
            num_features: Number of feature columns.
            num_classes: Number of classes, if there are labels.
            facts: How the folder came about; anything JSON can hold.
            classes: Names of the classes, if they have any.
        """
        arrays = {}
        for name, writer in self._writers.items():
            writer.close()
            digest = sha256_of(self._partial / f"{name}.npy")
            arrays[name] = ArrayEntry(writer.dtype.str, writer.shape, digest)
        manifest = Manifest(
            num_nodes=num_nodes,
            num_edges=self._writers["source"].rows,
            num_features=num_features,
            num_classes=num_classes,
            features="dense" if "x" in arrays else "sparse",
            arrays=arrays,
            classes=classes,
            facts={"written_by": f"gsebo {__version__}", **facts},
        )
        manifest.check(self._path / MANIFEST)
        self._manifest = manifest

    def _appear(self) -> None:
        if self._manifest is None:
            raise RuntimeError("a graph folder was left before it was finished")
        shutil.rmtree(self.scratch)
        with (self._partial / MANIFEST).open("x", encoding="utf-8") as file:
            file.write(self._manifest.text())
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._partial)
        # Replaces an empty folder, and fails if it is not empty any more.
        os.rename(self._partial, self._path)
        _sync_folder(self._path.parent)

    def _refused(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"cannot write {self._path} ({error.strerror or error}); expected a place "
            "that is writable, with enough room."
        )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _sync_folder(path: Path) -> None:
    """Make names on the disk as safe as the content of files."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
