"""A package outside ours adds a thing of each kind: one file and one line each."""

import json
import os
import subprocess
import sys
from pathlib import Path

FILES = {
    "loader.py": '''
from gsebo.loader import SAMPLERS, Batch, BoundSampler, Sampler


class Bound(BoundSampler):
    """Draws the whole graph, around all nodes that are asked for."""

    def __init__(self, arrays):
        self._arrays = arrays

    def batch(self, nodes, number):
        return Batch.full(self._arrays, nodes)

    def batches_in_pass(self, nodes):
        return 1

    def cover(self, nodes):
        if len(nodes):
            yield Batch.full(self._arrays, nodes)


class Everything(Sampler):
    """Every batch is the whole graph."""

    def bind(self, arrays, *, num_layers, batch_size, seed):
        return Bound(arrays)


SAMPLERS["everything"] = Everything
''',
    "file_format.py": '''
import json

import torch

from gsebo import Graph
from gsebo.data import FORMATS


def read(path):
    """A graph as JSON: features, edges and labels."""
    held = json.loads(path.read_text("utf-8"))
    return Graph(
        torch.tensor(held["x"]), torch.tensor(held["edges"]).T, torch.tensor(held["y"])
    )


FORMATS[".graph"] = read
''',
    "evidence.py": '''
from gsebo.structure import EVIDENCE


def hubs(edges):
    """Whether both ends have many edges."""
    return (edges.degree[edges.source] * edges.degree[edges.target]).log1p()


EVIDENCE["hubs"] = hubs
''',
    "baseline.py": '''
from gsebo.graph import Propagation
from gsebo.methods import METHODS, EpochClassifier, MethodInfo
from gsebo.sparse import Noise
from gsebo.training import JointProblem, Member


class HalfProblem(JointProblem):
    """Every entry counts half."""

    def initial_outer(self):
        return {}

    def members(self, weights, outer):
        half = 0.5 * self.initial_strengths
        return [Member(Propagation(self.task.graph.pattern, half))]

    def loss(self, weights, outer, step):
        (member,) = self.members(weights, outer)
        noise = Noise(self.task.seed, step)
        logits = self.task.logits(weights, *member.propagation, noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)


class Half(EpochClassifier):
    """A network whose propagation is halved."""

    def _train(self, data, runs):
        return self.train_jointly(data, runs, lambda task, run: HalfProblem(task))


METHODS["half"] = MethodInfo(Half, "propagation is halved", "none")
''',
    "noise.py": '''
import copy

import torch

from gsebo.data import NOISE_KINDS, NoiseKind


def forget(data, percent, seed):
    """Set so many percent of the columns of the features to zero."""
    noisy = copy.copy(data)
    count = data.x.shape[1] * percent // 100
    noisy.x = torch.cat([torch.zeros_like(data.x[:, :count]), data.x[:, count:]], 1)
    return noisy


NOISE_KINDS["forgotten"] = NoiseKind(forget, "columns forgotten")
''',
}
SCRIPT = """
import json, sys
import torch
import gsebo
import more.baseline, more.evidence, more.file_format, more.loader, more.noise
from gsebo.methods import METHODS

made = gsebo.generate_graph(80, average_degree=5.0, num_features=6, seed=1)
with open("mine.graph", "w") as file:
    edges = made.edge_index.T.tolist()
    json.dump({"x": made.x.tolist(), "edges": edges, "y": made.y.tolist()}, file)
data = gsebo.apply_split(gsebo.load_data("mine.graph"), "random:20/30/50", seed=0)
noisy = gsebo.apply_noise(data, "forgotten:50")
short = dict(max_outer_steps=2, inner_steps=3, random_state=0, device="cpu")

half = METHODS["half"].make(max_epochs=4, random_state=0, device="cpu").fit(data)
every = gsebo.GSEBO(batch_size=1, sampler="everything", **short).fit(data)
whole = gsebo.GSEBO(**short).fit(data)
few = dict(short, num_folds=2, refit_epochs=4)
told = gsebo.Amortised(evidence="cosine,hubs", **few).fit(data)
untold = gsebo.Amortised(evidence="cosine", **few).fit(data)
parts = gsebo.Amortised(evidence="cosine,hubs", batch_size=20, **few).fit(data)
halved = half.strength_ / half.initial_strength_
print(json.dumps({
    "half": bool((halved == 0.5).all()),
    "everything is the whole graph": torch.equal(every.strength_, whole.strength_),
    "evidence counts": not torch.equal(told.strength_, untold.strength_),
    "evidence on batches": bool(parts.probability_.isfinite().all()),
    "evidence of new nodes": bool(told.predict_proba(made).isfinite().all()),
    "noise": int((noisy.x == 0).all(0).sum()),
}))
"""


def test_each_is_one_file_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/__init__.py").touch()
    for name, text in FILES.items():
        (tmp_path / "more" / name).write_text(text.lstrip())
        lines = [line for line in text.splitlines() if "] = " in line]
        assert len(lines) == 1
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "half": True,
        "everything is the whole graph": True,
        "evidence counts": True,
        "evidence on batches": True,
        "evidence of new nodes": True,
        "noise": 3,
    }
