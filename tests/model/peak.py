"""Run in a process of its own: score a graph in files, print how much memory it took.

``python peak.py SMALL LARGE MEMORY``: two folders with graphs, and the bytes allowed.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from gsebo.experiments.fit import peak_memory_bytes, reset_peak_memory
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import Chunk
from gsebo.graph.mapped import gather_rows
from gsebo.model.layerwise import ChunkedGraph
from gsebo.model.scorer import ScoredEdges
from gsebo.nn import make_backbone
from gsebo.structure import AmortisedStrength

CPU = torch.device("cpu")
CLASSES = 8


def scored(folder: Path, memory: int) -> int:
    """Bytes that scoring took beside what was there before."""
    arrays = GraphArrays(
        *(
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("indptr", "source", "x")
        )
    )
    width = arrays.num_features
    backbone = make_backbone(
        "gcn",
        in_channels=width,
        hidden_channels=64,
        out_channels=CLASSES,
        num_layers=2,
        dropout=0.5,
    )
    structure = AmortisedStrength()
    numbers = structure.num_inputs
    shapes = {"centre": (width,), "scale": (width,), "mean": (7,), "spread": (7,)}
    shapes |= {"hidden": (numbers, 16), "shift": (1, 16), "output": (16, 1)}
    restored = {name: torch.ones(shape) for name, shape in shapes.items()}
    structure.restore(restored, backbone.normalise)
    shape = (arrays.num_nodes, CLASSES)
    predicted = np.memmap(folder / "predicted", np.float32, "w+", shape=shape)
    out = np.memmap(folder / "out", np.float32, "w+", shape=shape)
    reset_peak_memory()
    before = peak_memory_bytes(CPU)

    def state_of(chunk: Chunk) -> list[torch.Tensor]:
        rows = gather_rows(predicted, chunk.nodes.numpy())
        return [torch.from_numpy(rows).softmax(-1)] * 2

    # So much for strengths, and as much for layers.
    graph = ChunkedGraph(arrays, memory=2 * memory, scratch=folder)
    strengths_of = ScoredEdges(
        structure, graph, backbone, state_of, num_classes=CLASSES
    )
    graph.scores(backbone, strengths_of, out=out)
    return peak_memory_bytes(CPU) - before


if __name__ == "__main__":
    small, large, memory = sys.argv[1:]
    # Kernels are compiled or loaded on a graph that needs nothing.
    scored(Path(small), int(memory))
    print(json.dumps(scored(Path(large), int(memory))))
