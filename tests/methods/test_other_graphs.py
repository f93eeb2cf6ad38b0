"""A saved model with another graph: it predicts, or one sentence says why not."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gsebo import InvalidInput, load_model
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.methods import GraphClassifier

from .auto_examples import auto, bare
from .batch_examples import amortised_on_batches, gsebo_on_batches
from .examples import fitted, quick, small_graph, to_csr, with_fields

Make = Callable[[GraphFolder], GraphClassifier]
MODELS: dict[str, Make] = {
    **{
        name: lambda _, name=name: fitted(name)
        for name in ("gsebo", "amortised", "vanilla", "gaug_m", "idgl", "lds")
    },
    "layers": lambda _: quick("gsebo", backbone="sage", per_layer=True).fit(DATA),
    "of pyg": lambda _: fitted("vanilla", "GIN"),
    "standard": lambda _: auto(features="standard").fit(DATA),
    "bare": lambda _: auto(features="auto", methods="vanilla").fit(bare(DATA)),
    "degree": lambda _: auto(features="degree", methods="vanilla").fit(bare(DATA)),
    "folder": lambda folder: gsebo_on_batches(max_outer_steps=1).fit(folder),
    "function of a folder": lambda folder: amortised_on_batches(max_outer_steps=1).fit(
        folder
    ),
}
# Those that look at no features, and those that know the very graph of their fit only.
BLIND, FAITHFUL = {"bare", "degree"}, {"folder"}

DATA = small_graph()
X, EDGES, SIZE = DATA.x, DATA.edge_index, DATA.num_nodes


def changed(**fields: Any) -> Data:
    return with_fields(DATA, **fields)


def spoilt(value: float) -> Tensor:
    x = X.clone()
    x[3, 1] = value
    return x


# The graph of the fit, whatever it is stored as.
SAME: dict[str, Any] = {
    "itself": DATA,
    "double": changed(x=X.double()),
    "sparse": changed(x=to_csr(X)),
    "sparse double": changed(x=to_csr(X.double())),
    "turned": changed(edge_index=EDGES.flip(0)),
    "edges twice": changed(edge_index=torch.cat([EDGES, EDGES], 1)),
    "small integers": changed(edge_index=EDGES.to(torch.int16)),
    "no labels": Data(x=X, edge_index=EDGES),
    "more classes": changed(y=DATA.y + 5),
    "labels of floats": changed(y=DATA.y.float()),
    "strided": changed(x=torch.stack([X, X], -1)[..., 0]),
    "gradients": changed(x=X.clone().requires_grad_()),
}
# Other graphs that every method knows something about, but the faithful ones.
OTHER: dict[str, Any] = {
    "half": changed(x=X.half()),
    "bfloat16": changed(x=X.bfloat16()),
    "few values": changed(x=to_csr(X * (X > 1.5))),
    "zeros": changed(x=X * 0),
    "huge": changed(x=X * 1e30),
    "fewer edges": changed(edge_index=EDGES[:, 4:]),
    "directed": changed(edge_index=EDGES[:, EDGES[0] < EDGES[1]]),
    "shuffled features": changed(x=X.flip(0)),
}
# Graphs of other nodes.
LARGER_OR_SMALLER: dict[str, Any] = {
    "more nodes": Data(x=torch.cat([X, X[:5] + 0.5]), edge_index=EDGES),
    "fewer nodes": Data(x=X[:30], edge_index=EDGES[:, (EDGES < 30).all(0)]),
    "two nodes": Data(x=X[:2], edge_index=torch.tensor([[0], [1]])),
    "another": small_graph(35, seed=5),
}
OTHER_FEATURES: dict[str, Any] = {
    "fewer": changed(x=X[:, :3]),
    "more": changed(x=torch.cat([X, X], 1)),
    "one": changed(x=X[:, :1]),
    "fewer, sparse": changed(x=to_csr(X[:, :3])),
    "none": with_fields(bare(DATA), num_nodes=SIZE),
}
USELESS: dict[str, Any] = {
    "no columns": changed(x=X[:, :0]),
    "integers": changed(x=X.long()),
    "coo": changed(x=X.to_sparse()),
    "nan": changed(x=spoilt(float("nan"))),
    "infinite": changed(x=spoilt(float("inf"))),
    "vector": changed(x=X[:, 0]),
    "cube": changed(x=X.unsqueeze(0)),
    "numpy": changed(x=X.numpy()),
    "no edges": changed(edge_index=EDGES[:, :0]),
    "loops alone": changed(edge_index=EDGES[:1].expand(2, -1)),
    "edges of floats": changed(edge_index=EDGES.float()),
    "flat edges": changed(edge_index=EDGES.flatten()),
    "node too large": changed(edge_index=EDGES + 1),
    "node negative": changed(edge_index=EDGES - 1),
    "no nodes": Data(x=X[:0], edge_index=EDGES[:, :0]),
    "nothing": Data(),
    "names twice": changed(node_id=torch.zeros(SIZE, dtype=torch.int64)),
    "few names": changed(node_id=torch.arange(3)),
    "nodes uncounted": changed(num_nodes=SIZE + 10),
    "hetero": HeteroData(),
    "None": None,
    "text": "cora",
    "dictionary": {"x": X},
    "tensor": X,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("other")


@cache
def in_folder(name: str, base: Path) -> GraphFolder:
    graphs = SAME | OTHER | LARGER_OR_SMALLER | OTHER_FEATURES
    return write_folder(graphs[name], base / name.replace(" ", "_"))


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest, base: Path) -> tuple[str, GraphClassifier]:
    return request.param, loaded_model(request.param, base)


@cache
def loaded_model(name: str, base: Path) -> GraphClassifier:
    MODELS[name](in_folder("itself", base)).save(base / f"model of {name}")
    return load_model(base / f"model of {name}")


def predicts(model: GraphClassifier, graph: Data | GraphFolder) -> Tensor:
    is_folder = isinstance(graph, GraphFolder)
    size = graph.manifest.num_nodes if is_folder else graph.num_nodes
    found = model.predict_proba(graph)
    assert found.shape == (size, 2)
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[:, 0]))
    return found


def refuses(model: GraphClassifier, graph: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        model.predict_proba(graph)
    message = str(caught.value)
    assert "\n" not in message and "xpected" in message and len(message) < 250
    return message


@pytest.mark.filterwarnings("ignore::gsebo.InputWarning")
def test_every_model_on_every_graph(
    model: tuple[str, GraphClassifier], base: Path
) -> None:
    name, loaded = model
    expected = predicts(loaded, DATA)
    for graph in SAME.values():
        close = {"rtol": 0, "atol": 1e-5}
        found = predicts(loaded, graph).to(expected.dtype)
        torch.testing.assert_close(found, expected, **close)
    for graph in OTHER.values():
        if name in FAITHFUL:
            assert "one strength per edge of the graph" in refuses(loaded, graph)
        else:
            predicts(loaded, graph)
    for graph in LARGER_OR_SMALLER.values():
        if name in FAITHFUL | {"bare"}:
            refuses(loaded, graph)
        else:
            predicts(loaded, graph)
    for kind, graph in OTHER_FEATURES.items():
        if name in BLIND:
            predicts(loaded, graph)
        else:
            said = refuses(loaded, graph)
            assert kind == "none" or ("features" in said and "8" in said)


@pytest.mark.parametrize("name", ["gsebo", "bare", "standard", "folder"])
def test_what_is_no_graph(name: str, base: Path) -> None:
    for graph in USELESS.values():
        refuses(loaded_model(name, base), graph)


@pytest.mark.filterwarnings("ignore::gsebo.InputWarning")
def test_every_model_on_folders(model: tuple[str, GraphClassifier], base: Path) -> None:
    name, loaded = model
    expected = predicts(loaded, DATA)
    large = not loaded.model_.is_held
    for kind in ("itself", "sparse", "turned", "no labels", "more classes"):
        found = predicts(loaded, in_folder(kind, base))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    if large:
        said = refuses(loaded, in_folder("double", base))
        assert said.startswith(
            "the features of the graph are float64; expected float32"
        )
    else:
        predicts(loaded, in_folder("double", base))
    for kind in ("fewer edges", "directed", "more nodes", "fewer nodes", "another"):
        unknown = kind not in ("fewer edges", "directed")
        if name in FAITHFUL or (name == "bare" and unknown):
            refuses(loaded, in_folder(kind, base))
        else:
            predicts(loaded, in_folder(kind, base))
    for kind in ("fewer", "more"):
        if name in BLIND:
            predicts(loaded, in_folder(kind, base))
        else:
            assert "expected 8" in refuses(loaded, in_folder(kind, base))
