"""Graph folders: any bytes, and arrays and manifests whose checksums are right."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, final

import numpy as np
from hypothesis import strategies as st
from tests.data.folder.tampering import edit, everything, replace_array
from tests.methods.examples import to_csr

from fuzz.damage import array_damage, bytes_damage, tree_damage
from fuzz.target import Draw, Originals, Target, require
from gsebo import GSEBO, generate_graph
from gsebo.data.datasets.registry import MANIFEST
from gsebo.data.formats.folder import GraphFolder, write_folder

_LARGEST_TO_FIT = 200


def write_folders(folder: Path) -> None:
    """Write a folder of each kind: with dense, sparse and no own features."""
    data = generate_graph(40, average_degree=4.0, num_features=5, seed=1)
    write_folder(data, folder / "dense")
    data.x = to_csr((data.x > 0.5).float())
    write_folder(data, folder / "sparse")


@final
class FolderBytes(Target):
    """Files of a folder with any damage: refused, or what is read is the same."""

    name, share = "folder-bytes", 2

    def prepare(self, folder: Path) -> None:
        """Write whole folders."""
        write_folders(folder)

    def begin(self, folder: Path) -> None:
        """Read them."""
        self._originals = Originals(folder)
        self._whole = {
            kind: everything(path) for kind, path in self._originals.folders.items()
        }

    def draw(self, draw: Draw) -> Any:
        """Draw a kind, a file and what becomes of its bytes, or of the file."""
        kind = draw(st.sampled_from(sorted(self._originals.files)))
        files = self._originals.files[kind]
        file = draw(st.sampled_from(sorted(files)))
        if not draw(st.integers(0, 20)):
            return kind, file, draw(st.sampled_from(["gone", "folder", "another"]))
        return kind, file, bytes_damage(draw, files[file])

    def write(self, case: Any, place: Path) -> None:
        """Write the folder with the one file changed."""
        kind, file, content = case
        path = self._originals.copy(kind, place) / file
        if isinstance(content, bytes):
            path.write_bytes(content)
            return
        path.unlink()
        if content == "folder":
            path.mkdir()
        elif content == "another":
            names = sorted(self._originals.files[kind])
            other = names[names.index(file) - 1]
            shutil.copy(self._originals.folders[kind] / other, path)

    def read(self, case: Any, place: Path) -> None:
        """Read everything."""
        require(everything(place / "copy") == self._whole[case[0]], "what was written")


@final
class FolderContent(Target):
    """Folders that somebody made up, with checksums that fit."""

    name, share = "folders", 4

    def prepare(self, folder: Path) -> None:
        """Write whole folders."""
        write_folders(folder)

    def begin(self, folder: Path) -> None:
        """Read them."""
        self._originals = Originals(folder)

    def draw(self, draw: Draw) -> Any:
        """Draw a kind, and a change of the manifest or of an array."""
        kind = draw(st.sampled_from(sorted(self._originals.folders)))
        folder = self._originals.folders[kind]
        fits = not draw(st.integers(0, 7))
        if draw(st.integers(0, 2)):
            arrays = sorted(each.stem for each in folder.glob("*.npy"))
            name = draw(st.sampled_from(arrays))
            if not draw(st.integers(0, 4)):
                content = self._originals.files[kind][f"{name}.npy"]
                return kind, name, bytes_damage(draw, content), False
            array = np.load(folder / f"{name}.npy")
            return kind, name, array_damage(draw, array), fits
        manifest = json.loads(self._originals.files[kind][MANIFEST])
        del manifest["sha256"]
        return kind, MANIFEST, tree_damage(draw, manifest), fits

    def write(self, case: Any, place: Path) -> None:
        """Write the folder and make its checksums fit."""
        kind, name, content, _ = case
        folder = self._originals.copy(kind, place)
        if isinstance(content, bytes):
            path = folder / f"{name}.npy"
            path.write_bytes(content)
            seal = {"sha256": hashlib.sha256(content).hexdigest()}
            edit(folder, lambda old: old["arrays"][name].update(seal))
        elif name != MANIFEST:
            replace_array(folder, name, content)
        elif isinstance(content, dict):
            # What no text can hold is written as what it can.
            plain = json.loads(
                json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
            )
            edit(folder, lambda old: (old.clear(), old.update(plain)))
        else:
            (folder / MANIFEST).write_text(repr(content), "utf-8", "replace")

    def read(self, case: Any, place: Path) -> None:
        """Read everything; check what kernels rely on, and fit for a step."""
        folder = place / "copy"
        everything(folder)
        opened = GraphFolder.open(folder)
        manifest, arrays, data = opened.manifest, opened.arrays(), opened.to_data()
        nodes = manifest.num_nodes
        starts, source = np.asarray(arrays.indptr), np.asarray(arrays.source)
        require(starts.shape == (nodes + 1,), "a start for each node")
        require(starts[0] == 0 and starts[-1] == len(source), "all edges")
        require(bool((np.diff(starts) >= 0).all()), "rows in order")
        require(bool(((source >= 0) & (source < nodes)).all()), "nodes that there are")
        require(tuple(data.x.shape) == (nodes, manifest.num_features), "all features")
        values = data.x.values() if data.x.is_sparse_csr else data.x
        require(bool(values.isfinite().all()), "finite features")
        if data.y is not None and manifest.num_classes is not None:
            known = data.y[data.train_mask | data.val_mask]
            require(
                bool((known < manifest.num_classes).all()), "classes that there are"
            )
        if nodes <= _LARGEST_TO_FIT and case[-1]:
            model = GSEBO(hidden_channels=4, inner_steps=1, max_outer_steps=1)
            model.set_params(batch_size=16, device="cpu", random_state=0).fit(opened)
