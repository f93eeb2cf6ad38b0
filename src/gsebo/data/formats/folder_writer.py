"""Write a graph folder in pieces, so that it appears whole or not at all."""

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from numpy.typing import DTypeLike

from gsebo.data.formats.folder_check import array_files, read_through, rule_of
from gsebo.data.formats.manifest import MANIFEST, ArrayEntry, Manifest, manifest_of
from gsebo.data.formats.npy_stream import NpyWriter
from gsebo.errors import InvalidInput, escaped
from gsebo.version import __version__

# Characters of a name that are kept in another name, of four bytes each at most.
_LONGEST = 50


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
        self._path = Path(os.path.expanduser(path)).absolute()
        self._writers: dict[str, NpyWriter] = {}
        self._manifest: Manifest | None = None
        if os.path.lexists(self._path) and not _is_empty_folder(self._path):
            raise InvalidInput(
                f"{escaped(str(path))} is there already: expected a new name."
            )
        # Cut, because a name that is just short enough has no room for more.
        name = f".{self._path.name[:_LONGEST]}.{secrets.token_hex(4)}.partial"
        self._partial = self._path.parent / name
        self._made: list[Path] = []
        self.scratch = self._partial / "scratch"

    def __enter__(self) -> Self:
        try:
            self._made = [one for one in self._path.parents if not one.exists()]
            self.scratch.mkdir(parents=True)
        except (OSError, ValueError) as error:
            self._tidy()
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
            self._tidy()
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
        for writer in self._writers.values():
            writer.close()
        arrays = {
            name: ArrayEntry(
                # The only types that manifests know are refused below.
                dtype=writer.dtype.str,  # type: ignore[arg-type]
                shape=writer.shape,
                sha256="0" * 64,
            )
            for name, writer in self._writers.items()
        }
        manifest = Manifest(
            num_nodes=num_nodes,
            num_edges=self._writers["source"].rows,
            num_features=num_features,
            num_classes=num_classes,
            features="dense" if "x" in arrays else "sparse",
            classes=classes,
            arrays=arrays,
            facts={"written_by": f"gsebo {__version__}", **facts},
        )
        manifest = self._as_read(manifest)
        files = array_files(self._partial, manifest)
        found = read_through(self._partial, manifest, self._path)
        self._manifest = manifest.with_checksums(found)
        # Moved to another name, files are still the same.
        files.remember(rule_of(self._manifest))

    def _as_read(self, manifest: Manifest) -> Manifest:
        """The manifest, if it can be read back."""
        try:
            text = manifest.text().encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"cannot write {escaped(str(self._path / MANIFEST))} "
                f"({escaped(str(error), longest=80)}); expected names and facts of "
                "plain text and finite numbers."
            ) from error
        return manifest_of(text, self._path / MANIFEST)

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

    def _tidy(self) -> None:
        """Remove what is left; nothing, if all went well."""
        shutil.rmtree(self._partial, ignore_errors=True)
        for folder in self._made:
            # Those that hold the result, or something of others, stay.
            with suppress(OSError):
                folder.rmdir()

    def _refused(self, error: OSError | ValueError) -> InvalidInput:
        reason = getattr(error, "strerror", None) or escaped(str(error))
        return InvalidInput(
            f"cannot write {escaped(str(self._path))} ({reason}); expected a place "
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
