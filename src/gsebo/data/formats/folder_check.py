"""Whether a graph folder holds what it says: every array is read once, in pieces.

Kernels and networks read the arrays of a folder without a second check. So before they
do, checksums are compared and every number is seen to be in its range.

Files that were found right are remembered, and not read again. A file is taken to be as
it was while its inode, size and times of change are. What was found is kept in this
process and, of files that take long to read, in the user's cache, for the next process.
Whatever is wrong with the cache, files are just read again.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from gsebo.data.datasets.registry import MANIFEST, cache_folder
from gsebo.data.formats.manifest import Manifest
from gsebo.data.formats.npy_stream import Array, NpyReader, map_array
from gsebo.data.seeding import first_repeated
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput, escaped
from gsebo.files import checksum, read_bytes, require_regular, write_atomically
from gsebo.version import __version__

# Bytes from which on a process tells the next one.
_LARGE = 2**24
# Nanoseconds for which a file may be written again without a new time of change: what
# clocks are late by, or where there are whole seconds only, two of them and some more.
_TICK, _COARSE_TICK = 10**8, 25 * 10**8
# How long to wait for another process that reads the same: seconds, bytes in a second.
_PATIENCE, _SLOWEST = 10.0, 10**7
_POLL = 0.02
# What a cache raises that is not there, not ours, or in no place at all.
_UNUSABLE = (OSError, RuntimeError, ValueError)

_WHAT = "an array of a graph folder"
_VALUES_AT_ONCE = 2**18

_PASSED: set[str] = set()


@final
class _State(NamedTuple):
    """What tells whether a file was changed."""

    inode: int
    size: int
    modified: int
    changed: int

    def is_young(self, now: int) -> bool:
        """Whether it could still be changed without its times telling."""
        return any(
            abs(now - moment) <= (_TICK if moment % 10**9 else _COARSE_TICK)
            for moment in (self.modified, self.changed)
        )


@final
class CheckedFiles:
    """The files of a folder's arrays, as they are now, to be checked by one rule.

    The rule is all that they are compared with, as a text.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._files = [folder / f"{name}.npy" for name in names]
        self._states = self._look()
        self._is_large = sum(state.size for state in self._states) >= _LARGE
        if self._is_large:
            self._outlast_a_tick()
        self._are_old = not any(s.is_young(time.time_ns()) for s in self._states)

    def remember(self, rule: str) -> None:
        """Keep in mind that these files were found right, if nobody changed them."""
        found = zip(self._files, self._states, self._look(), strict=True)
        for path, before, now in found:
            if before != now:
                raise InvalidInput(
                    f"{path} was changed while it was read; expected it to stay as it "
                    "is."
                )
        if self._are_old:
            _PASSED.add(key := self._key(rule))
            if self._is_large:
                with suppress(*_UNUSABLE):
                    write_atomically(_place(key), key.encode())

    def known(self, rule: str) -> bool:
        """Whether they were found right before, here or by another process."""
        key = self._key(rule)
        if key not in _PASSED and self._is_large:
            with suppress(*_UNUSABLE):
                if read_bytes(_place(key), "a note of gsebo", len(key)) == key.encode():
                    _PASSED.add(key)
        return key in _PASSED

    def _key(self, rule: str) -> str:
        return hashlib.sha256(repr((rule, self._states)).encode()).hexdigest()

    def _look(self) -> list[_State]:
        found = (require_regular(path, _WHAT) for path in self._files)
        return [
            _State(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
            for one in found
        ]

    def _outlast_a_tick(self) -> None:
        """Wait until a change would be seen: reading twice would take longer."""
        until = time.monotonic() + _COARSE_TICK / 1e9
        while any(state.is_young(time.time_ns()) for state in self._states):
            if time.monotonic() > until:
                return
            time.sleep(_POLL)
        self._states = self._look()

    @contextmanager
    def alone(self, rule: str) -> Iterator[None]:
        """Keep other processes from reading the same at the same time.

        Nothing depends on it: who waits for too long, or cannot tell the others, reads
        all the same.
        """
        with ExitStack() as stack:
            if self._is_large:
                from filelock import FileLock

                size = sum(state.size for state in self._states)
                # A lock that it has waited for too long is an OSError too.
                with suppress(*_UNUSABLE):
                    path = _place(self._key(rule)).with_suffix(".lock")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    lock = FileLock(path, timeout=_PATIENCE + size / _SLOWEST)
                    stack.enter_context(lock.acquire(poll_interval=_POLL))
                    stack.callback(_remove, path)
            yield


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _place(key: str) -> Path:
    return cache_folder() / "checked" / key


def check_arrays(folder: Path, manifest: Manifest, *, anew: bool = False) -> None:
    """Compare the arrays with their checksums and with what a graph has to be.

    That they passed is remembered as long as nobody changes the files, for all but
    those who want them read ``anew``. Of several processes, one reads and others wait.
    """
    files, rule = CheckedFiles(folder, manifest.arrays), rule_of(manifest)
    if not anew and files.known(rule):
        return
    with files.alone(rule):
        # Another process may have been faster.
        if anew or not files.known(rule):
            _compare(folder, manifest)
            files.remember(rule)


def rule_of(manifest: Manifest) -> str:
    """What arrays that pass were compared with; the rules may change with versions."""
    return f"graph folder, gsebo {__version__}\n{manifest.text()}"


def read_through(folder: Path, manifest: Manifest, shown: Path) -> dict[str, str]:
    """Read all arrays once, check what they hold, and return their checksums by name.

    Checksums are not compared. Memory grows with the nodes only where their names are
    not in rising order. ``shown`` is what the folder is called in messages.
    """
    with _opened(folder, manifest, shown) as arrays:
        return _read(arrays, manifest, folder, shown)


def _compare(folder: Path, manifest: Manifest) -> None:
    with _opened(folder, manifest, folder) as arrays:
        try:
            found = _read(arrays, manifest, folder, folder)
        except InvalidInput:
            # What is damaged may break any rule: the damage is the better thing to say.
            _compare_checksums(folder, manifest, {})
            raise
    _compare_checksums(folder, manifest, found)


def _compare_checksums(folder: Path, manifest: Manifest, known: dict[str, str]) -> None:
    for name, entry in manifest.arrays.items():
        path = folder / f"{name}.npy"
        found = known.get(name) or checksum(path, _WHAT)
        if found != entry.sha256:
            raise InvalidInput(
                f"{path} is damaged: its sha256 is {found[:12]}..., expected "
                f"{entry.sha256[:12]}..."
            )


@contextmanager
def _opened(
    folder: Path, manifest: Manifest, shown: Path
) -> Iterator[dict[str, NpyReader]]:
    with ExitStack() as stack:
        arrays = {}
        for name, entry in manifest.arrays.items():
            file, path = f"{name}.npy", escaped(str(shown / f"{name}.npy"))
            arrays[name] = NpyReader(folder / file, entry.dtype, entry.shape, path)
            stack.callback(arrays[name].close)
        yield arrays


def _read(
    arrays: dict[str, NpyReader], manifest: Manifest, folder: Path, shown: Path
) -> dict[str, str]:
    edges = arrays["indptr"], arrays["source"]
    _check_rows(*edges, manifest.num_nodes, "sources", loops=False)
    if manifest.features == "sparse":
        columns = arrays["x_indptr"], arrays["x_columns"]
        _check_rows(*columns, manifest.num_features, "columns", loops=True)
    x, width = arrays.get("x_values"), 1
    if x is None:
        x, width = arrays["x"], manifest.num_features
    _check_finite(x, width)
    _check_edge_values(arrays)
    _check_labels(arrays, manifest, shown)
    if "node_id" in arrays:
        _check_names(arrays["node_id"], folder / "node_id.npy")
    return {name: array.digest() for name, array in arrays.items()}


def _check_finite(array: NpyReader, width: int) -> None:
    for begin, values in _pieces(array):
        finite = np.isfinite(values)
        if not finite.all():
            place = int(np.argmin(finite))
            array.refuse((begin + place) // width, values[place], "finite numbers")


def _check_edge_values(arrays: dict[str, NpyReader]) -> None:
    """Check weights, which single precision has to hold, and attributes of edges."""
    if "edge_weight" in arrays:
        array, most = arrays["edge_weight"], np.finfo(np.float32).max
        for begin, values in _pieces(array):
            good = (values >= 0) & (values <= most)
            array.require(good, begin, values, f"0 to {most:.3g}")
    if "edge_attr" in arrays:
        _check_finite(arrays["edge_attr"], arrays["edge_attr"].shape[1])


def _pieces(array: NpyReader) -> Iterator[tuple[int, Array]]:
    return array.pieces(_VALUES_AT_ONCE)


def _check_rows(
    starts: NpyReader, entries: NpyReader, end: int, what: str, *, loops: bool
) -> None:
    """Check where rows begin, and that their numbers are below ``end`` and rise.

    With ``loops`` a row may hold its own number.
    """
    last = (-1, -1)
    for begin, values, rows in _entries_with_rows(starts, entries, what):
        inside = (values >= 0) & (values < end)
        entries.require(inside, begin, values, f"0 to {end - 1}")
        if not loops:
            entries.require(values != rows, begin, values, "no self-loop")
        rises = np.empty(len(values), np.bool_)
        rises[0] = values[0] > last[0] or rows[0] != last[1]
        rises[1:] = (values[1:] > values[:-1]) | (rows[1:] != rows[:-1])
        row = rows[np.argmin(rises)]
        expected = f"the {what} of node {row} in rising order, each once"
        entries.require(rises, begin, values, expected)
        last = int(values[-1]), int(rows[-1])


def _entries_with_rows(
    starts: NpyReader, entries: NpyReader, what: str
) -> Iterator[tuple[int, Array, Array]]:
    """Where each piece of the entries begins, the piece, and the row of each number."""
    total, position = entries.shape[0], 0
    first = starts.read(1)
    if first[0] != 0:
        starts.refuse(0, first[0], "0")
    for begin, ends in _pieces(starts):
        edges = np.concatenate([first, ends])
        falls = np.flatnonzero(edges[1:] < edges[:-1])
        if len(falls):
            raise InvalidInput(
                f"{starts.shown} falls after position {begin - 1 + falls[0]}: expected "
                "it to rise."
            )
        expected = f"{total} at most, as there are {what}"
        starts.require(ends <= total, begin, ends, expected)
        while position < edges[-1]:
            end = min(position + _VALUES_AT_ONCE, int(edges[-1]))
            values = entries.read(end - position)
            low, high = np.searchsorted(edges, [position, end - 1], side="right") - 1
            counts = np.diff(edges[low : high + 2].clip(position, end))
            rows = np.repeat(np.arange(begin - 1 + low, begin + high), counts)
            yield position, values, rows
            position = end
        first = ends[-1:]
    if first[0] != total:
        starts.refuse(starts.shape[0] - 1, first[0], f"{total}, as there are {what}")


def _check_labels(
    arrays: dict[str, NpyReader], manifest: Manifest, shown: Path
) -> None:
    """Check classes and masks, which are read at the same time.

    The nodes to learn from say how many classes there are; others may be of classes
    that nobody can learn.
    """
    names = [name for name in ("y", *MASKS) if name in arrays]
    classes = manifest.num_classes or 0
    most = max(classes, manifest.num_nodes, 2)
    if manifest.classes is not None:
        most = len(manifest.classes)
    highest = -1
    for pieces in zip(*(_pieces(arrays[name]) for name in names), strict=True):
        begin = pieces[0][0]
        held = {name: piece for name, (_, piece) in zip(names, pieces, strict=True)}
        masks = {name: held[name] for name in MASKS if name in held}
        for name, mask in masks.items():
            stored = mask.view(np.uint8)
            arrays[name].require(stored <= 1, begin, stored, "0 or 1")
        for first, second in combinations(masks, 2):
            both = masks[first] & masks[second]
            expected = f"a node that is not in {second} too"
            arrays[first].require(~both, begin, np.full(len(both), "true"), expected)
        if "y" in held:
            ends = np.full(len(held["y"]), classes)
            teaching = [masks[name] for name in MASKS[:2] if name in masks]
            if teaching:
                ends[~np.logical_or.reduce(teaching)] = most
            good = (held["y"] >= -1) & (held["y"] < ends)
            expected = f"a class from 0 to {ends[np.argmin(good)] - 1}, or -1 for none"
            arrays["y"].require(good, begin, held["y"], expected)
            highest = max(highest, int(held["y"].max()))
    if classes > highest + 1:
        raise InvalidInput(
            f"num_classes of {escaped(str(shown / MANIFEST))} is {classes}: expected "
            f"{highest + 1} at most, as y holds no larger class than {highest}."
        )


def _check_names(array: NpyReader, file: Path) -> None:
    """Check that no two nodes have the same name, and that texts are texts."""
    rising, last = True, np.empty(0, array.dtype)
    for begin, names in _pieces(array):
        if names.dtype.kind == "S":
            array.require(names != b"", begin, names, "a name for each node")
            try:
                np.char.decode(names, "utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"{array.shown} holds bytes that are no text: expected UTF-8."
                ) from error
        ordered = np.concatenate([last, names])
        rising = rising and bool((ordered[1:] > ordered[:-1]).all())
        last = names[-1:]
    if rising:
        return
    whole = np.array(map_array(file, array.dtype, array.shape))
    if (repeated := first_repeated(whole)) is not None:
        place = repeated[0]
        array.refuse(place, whole[place], "another name for each node")
