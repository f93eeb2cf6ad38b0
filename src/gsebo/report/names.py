"""Names as people read them, and what the paper prints."""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

import gsebo.experiments
from gsebo.files import Name, Record, Size, read_toml_as
from gsebo.metrics import MetricName

_FILE = Path(gsebo.experiments.__file__).parent / "published.toml"
_Percent = Annotated[float, Meta(ge=0, le=100)]
_Rows = dict[Name, dict[Name, list[tuple[_Percent, _Percent]]]]


class _Gains(Record, frozen=True, kw_only=True):
    noise: Size
    dataset: Name
    gains: dict[Name, float]


class PublishedSummary(Record, frozen=True, kw_only=True):
    """What the paper's text sums up: gains of GSEBO in percent."""

    by_row: dict[Name, float]  # Over the network alone, mean over graphs.
    by_dataset: dict[Name, float]  # The same, mean over networks.
    over_others: tuple[float, float]  # The least and the most, over compared methods.


class _Reported(Record, frozen=True, kw_only=True):
    """What others print of graphs of ours: means, by graph and method."""

    source: Name
    means: dict[Name, dict[Name, _Percent]]
    # Of graphs whose means are none of accuracies.
    metrics: dict[Name, MetricName] = msgspec.field(default_factory=dict)


class PublishedTable(Record, frozen=True, kw_only=True):
    """What others print of graphs that are not ours, to be shown below our tables."""

    title: Name
    columns: list[Name]
    rows: dict[Name, list[_Percent]]  # Of the first columns, where there are fewer.


class _Published(Record, frozen=True, kw_only=True):
    datasets: list[Name]
    table1: _Rows
    table2: _Rows
    robustness: _Gains
    summary: PublishedSummary
    recipes: dict[Name, list[Literal["table1", "table2"]]]
    printed_as: dict[Name, Name]
    reported: dict[Name, _Reported]
    elsewhere: dict[Name, list[PublishedTable]]


@cache
def _published() -> _Published:
    return read_toml_as(_Published, _FILE, "the paper's figures")


def published_figure(
    recipe: str, row: str, method: str, dataset: str, metric: str = "accuracy"
) -> tuple[float, float | None] | None:
    """Mean in percent that is printed, without noise, and its standard deviation."""
    content = _published()
    if recipe in content.reported:
        reported = content.reported[recipe]
        printed = reported.means.get(dataset, {}).get(method)
        same_metric = reported.metrics.get(dataset, "accuracy") == metric
        return None if printed is None or not same_metric else (printed, None)
    same = content.printed_as
    if dataset not in content.datasets or metric != "accuracy":
        return None
    place = content.datasets.index(dataset)
    for table in content.recipes.get(recipe, ()):
        tables: _Rows = getattr(content, table)
        rows = tables.get(same.get(row, row), {})
        if figures := rows.get(same.get(method, method)):
            return figures[place]
    return None


def published_source(recipe: str) -> str:
    """Where the figures beside a recipe's are printed."""
    reported = _published().reported
    return reported[recipe].source if recipe in reported else "the paper"


def published_elsewhere(recipe: str) -> list[PublishedTable]:
    """What others print of other graphs, to be compared with a recipe by eye."""
    return _published().elsewhere.get(recipe, [])


def published_gain(row: str) -> float | None:
    """By how many percent GSEBO beats vanilla at :func:`gain_place`."""
    content = _published()
    return content.robustness.gains.get(content.printed_as.get(row, row))


def published_summary() -> PublishedSummary:
    """What the paper sums up of its first two tables."""
    return _published().summary


def gain_place() -> tuple[str, int]:
    """The dataset and the number of false edges of :func:`published_gain`."""
    place = _published().robustness
    return place.dataset, place.noise


_METHODS = {
    "gsebo": "GSEBO",
    "train_val": "train + val",
    "retrain": "retrained",
    "single_level": "single level",
    "mlp": "MLP",
    "adaedge": "AdaEdge",
    "gaug_m": "GAug-M",
    "gaug_o": "GAug-O",
    "dropedge": "DropEdge",
    "neuralsparse": "NeuralSparse",
    "magna": "MAGNA",
    "ptdnet": "PTDNet",
    "bgcn": "BGCN",
    "vgcn": "VGCN",
    "idgl": "IDGL",
    "grcn": "GRCN",
    "sublime": "SUBLIME",
    "slaps": "SLAPS",
    "lds": "LDS",
    "prognn": "Pro-GNN",
    "gen": "GEN",
    "stable": "STABLE",
    "denne": "DenNE",
    "hgsl": "HGSL",
    "gcn_jaccard": "GCN-Jaccard",
    "gcn_svd": "GCN-SVD",
    "rgcn": "RGCN",
    "gnnguard": "GNNGuard",
    "soft_median": "Soft-Median",
}
_BACKBONES = {
    "gcn": "GCN",
    "relational-gcn": "R-GCN",
    "han": "HAN",
    "gat": "GAT",
    "sage": "GraphSAGE",
    "sage-gcn": "GraphSAGE (gcn)",
    "jk": "JK-Net",
    "jk-sage": "JK-Net (GraphSAGE)",
    "jk-sage-mean": "JK-Net (GraphSAGE mean)",
    "magna": "MAGNA",
    "stable": "STABLE",
    "rgcn": "RGCN",
    "gnnguard": "GNNGuard",
    "soft-median": "Soft-Median",
    "appnp": "APPNP",
    "gcnii": "GCNII",
    "grand": "GRAND",
    "biweight": "Biweight",
    "mlp": "MLP",
}
_DATASETS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "terrorist": "Terrorist",
    "air-usa": "Air-USA",
    "pubmed": "Pubmed",
    "amazon-computers": "Amazon Computers",
    "dblp": "DBLP",
    "yelp": "Yelp",
    "minesweeper": "Minesweeper",
    "texas": "Texas",
    "wordnet-lexname": "WordNet",
    "blogcatalog": "BlogCatalog",
    "flickr": "Flickr",
}


def method_title(name: str) -> str:
    """Name of a method in its paper, or its own."""
    return _METHODS.get(name, name)


def backbone_title(name: str) -> str:
    """Name of a network; one of PyG's keeps its own."""
    return _BACKBONES.get(name, name)


def dataset_title(name: str) -> str:
    """Name of a dataset, or its own."""
    return _DATASETS.get(name, name)


def place_title(row: str, dataset: str, joint: str = ", ") -> str:
    """A network and a dataset.

    >>> place_title("sage", "air-usa"), place_title("GATv2", "cora", " on ")
    ('GraphSAGE, Air-USA', 'GATv2 on Cora')
    """
    return f"{backbone_title(row)}{joint}{dataset_title(dataset)}"
