"""The datasets known by name. A new one is an entry here, with or without converter."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gsebo.errors import InvalidInput
from gsebo.names import Registry, imported, lookup, normalise, own_name

if TYPE_CHECKING:
    from gsebo.graph.graph import Graph

Where = Literal["data_dir", "cache", "embedded", "absent"]
_Converter = Callable[[Mapping[str, bytes]], "Graph"]
_Reader = Callable[[str | PathLike[str]], "Graph"]

MANIFEST = "graph.json"
"""What says that a folder is a graph, and what it holds."""
_EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class RawFile:
    """A published file at a fixed commit, and how to know that it arrived whole."""

    file: str
    pinned_url: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class GraphInfo:
    """What is known of a graph without opening it; edges are undirected ones."""

    name: str
    description: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int


@dataclass(frozen=True)
class DatasetInfo(GraphInfo):
    """A published graph, in a file ``NAME.npz`` unless ``stem`` says another.

    Attributes:
        name: What it is called.
        description: What nodes, edges and classes are.
        num_nodes: Number of nodes.
        num_edges: Number of edges; both directions are one.
        num_features: Number of features of a node.
        num_classes: Number of classes.
        licence: What its publishers say about its use.
        source: Where it comes from.
        digest: `content_digest` of the graph.
        converter: Makes the graph from the contents of the raw files, or
            ``"MODULE:NAME"`` of it; without, the dataset cannot be downloaded and is
            taken from where ``NAME.npz`` lies.
        normalise_features: Whether its usual protocol divides each row of the
            features by its sum; no for those without such a protocol, whose features
            are best prepared by what ``auto`` chooses.
        default_split: The split used unless another is asked for.
        folder: Where its file lies in the folder that ``GSEBO_DATA`` names, or else in
            that folder itself.
        stem: Name of its file, without ``.npz``; its own by default.
        reader: Reads the file, or ``"MODULE:NAME"`` of what does; by default it is one
            of ours.
        before_attack: Name of the graph that this one was before edges were added and
            removed.
        family: What graphs are called together that differ by the budget of an attack.
        budget: That budget: a number, and in words of what.
    """

    licence: str
    source: str
    digest: str
    converter: str | _Converter | None = None
    normalise_features: bool = False
    default_split: str = "file"
    folder: str = ""
    stem: str = ""
    reader: str | _Reader = "gsebo.data.formats.npz:load_npz"
    before_attack: str | None = None
    family: str = ""
    budget: str = ""

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.stem or self.name}.npz"

    def read(self, path: str | PathLike[str]) -> "Graph":
        """Read its file; features are as they are stored."""
        found: Graph = imported(self.reader)(path)
        return found

    @property
    def convert(self) -> _Converter | None:
        """Makes the graph from the contents of the raw files."""
        converter: _Converter | None = imported(self.converter)
        return converter

    @property
    def raw_files(self) -> tuple[RawFile, ...]:
        """The files the converter needs; none without a converter."""
        return () if self.converter is None else _manifest()[self.name]


@cache
def _manifest() -> dict[str, tuple[RawFile, ...]]:
    text = (Path(__file__).parent / "manifest.json").read_text(encoding="utf-8")
    return {
        name: tuple(RawFile(**entry) for entry in entries)
        for name, entries in json.loads(text).items()
    }


# Pro-GNN's attacked graphs: largest component, its split; edges, and the digest.
_ATTACKED = {
    "citeseer-meta-0": (
        3668,
        "fa531675e760d5a3e1f911d7a8e535c569e4a78f8f7a6ca254ad6c0b1ad37f85",
    ),
    "citeseer-meta-5": (
        3851,
        "b41abb3a37eead36a9db71ec9b41b6b5aa2833ef9ffd437650f7ef8f752bf091",
    ),
    "citeseer-meta-10": (
        4032,
        "5cf4e7169d0cd02a788da0e73c2ae103e56d0900c593b93f944beab8aa25f875",
    ),
    "citeseer-meta-15": (
        4196,
        "b040708319fa88b85948ff25fdea218614d97d3cd1e156c4753f1ac6a1cfee0b",
    ),
    "citeseer-meta-20": (
        4375,
        "920de0ad3acf72b83dcb1a3d98a278ad84a883ae619bcaa0a70bf34276ce71a0",
    ),
    "citeseer-meta-25": (
        4549,
        "9df55e743b8f547e863aef9308673d2bae045023d09fc73e0d384c7b79988f49",
    ),
    "cora-meta-0": (
        5069,
        "53a557713f45bf81ae583d26a60f1de6c6de44b93b3182a86990e5193968c94c",
    ),
    "cora-meta-5": (
        5322,
        "ba6c5b2115980664ace0f9a0074ed1f17693a158f54fc48c00a7b9c8004c81fd",
    ),
    "cora-meta-10": (
        5567,
        "b091305c19a367c7bada25f1fd1c45ead288e3e1d90eb594b0b80bee76431d57",
    ),
    "cora-meta-15": (
        5809,
        "5f8091a195e5c7ba6ce47805b5d0b9b26d8f7c3df9918d2be837ac48097ad41d",
    ),
    "cora-meta-20": (
        6040,
        "2316b81b963573fafba1b0c6c78e9c31bc267cf079e26770ff27c5af51b451d6",
    ),
    "cora-meta-25": (
        6246,
        "78e60d524b3afc5db65b1933c045a265907577388e96d3d6be9ca547ebe95423",
    ),
    "cora-nettack-1": (
        5152,
        "7c11a2b882bd432f135314e68589cdaf8ef9907c676d34d2388d3e6f629b5041",
    ),
    "cora-nettack-2": (
        5225,
        "3a51f9d6ee745c172e4ceea93d006dc8daa7fa45be9acdbd6e1b8042cf6f1335",
    ),
    "cora-nettack-3": (
        5304,
        "c9055c3aee2ff089b0c7731d31b345aea2677f70c69cd71bf749e3d1c69852a3",
    ),
    "cora-nettack-4": (
        5375,
        "b451f19d59f40525e2e2eef8fe7885c200d1e71871ae880c99168073a961c913",
    ),
    "cora-nettack-5": (
        5440,
        "7e76e684ce8c41356b6b65b0760fcc2e23a78be4a26dc3ab36a6bc7a85cb65d9",
    ),
}


def _attacked(name: str, num_edges: int, digest: str) -> DatasetInfo:
    graph, kind, level = name.split("-")
    sizes = {"cora": (2485, 1433, 7), "citeseer": (2110, 3703, 6)}
    nodes, features, classes = sizes[graph]
    words = f"{level} % of the edges" if kind == "meta" else f"{level} edges a target"
    attack = "Metattack" if kind == "meta" else "Nettack"
    return DatasetInfo(
        name,
        f"{graph}'s largest component, {attack}, {words}",
        *(nodes, num_edges, features, classes),
        licence="repository without a licence (Pro-GNN); data of LINQS, none stated",
        source="https://github.com/ChandlerBang/Pro-GNN",
        digest=digest,
        folder="attacked",
        before_attack=None if name.endswith("-meta-0") else f"{graph}-meta-0",
        family=f"{graph.capitalize()}, {attack}",
        budget=words,
    )


_PLANETOID_LICENCE = "repository MIT; data of LINQS, no licence stated"
_PLANETOID_SOURCE = "https://github.com/kimiyoung/planetoid"
_HETEROPHILOUS_SOURCE = "https://github.com/yandex-research/heterophilous-graphs"
_GAUG_LICENCE = "repository MIT (GAug); adjacency and data none stated"
_GAUG_SOURCE = (
    "https://github.com/zhao-tong/GAug, https://github.com/xhuang31/AANE_Python"
)
_HGSL_LICENCE = "repository without a licence (HGSL); data none stated"
_HGSL_SOURCE = "https://github.com/Andy-Border/HGSL"
_HGSL_READER = "gsebo.data.datasets.hgsl:load_hgsl"

DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo(
            "cora",
            "papers on machine learning, citations, topic",
            *(2708, 5278, 1433, 7),
            converter="gsebo.data.datasets.raw:convert_cora",
            normalise_features=True,
            licence=_PLANETOID_LICENCE,
            source=_PLANETOID_SOURCE,
            digest="b5cd7a38ef8072702c2e2a24f5e096ac240ec358d45e84ac4b64b6b0e312d71d",
        ),
        DatasetInfo(
            "citeseer",
            "papers on computer science, citations, field",
            *(3327, 4552, 3703, 6),
            converter="gsebo.data.datasets.raw:convert_citeseer",
            normalise_features=True,
            licence=_PLANETOID_LICENCE,
            source=_PLANETOID_SOURCE,
            digest="7be72ef5d27881b8388815d14d1c9b1b10b5f84b8371cb27efb394ed02d2cd63",
        ),
        DatasetInfo(
            "terrorist",
            "terrorist attacks, same place, kind of attack",
            *(1293, 3172, 106, 6),
            converter="gsebo.data.datasets.raw:convert_terrorist",
            licence="none stated (LINQS, MIND Lab of the University of Maryland)",
            source="https://linqs-data.soe.ucsc.edu/public/lbc/TerrorAttack.tgz",
            digest="fbdce5910d09309680e698c8d9bc56565189dac136eeca4dfd3a830b0ce460bf",
        ),
        DatasetInfo(
            "air-usa",
            "airports of the USA, flights, activity of the airport",
            *(1190, 13599, 238, 4),
            converter="gsebo.data.datasets.raw:convert_air_usa",
            licence="graph and split MIT (struc2vec, GAug); data of the US BTS",
            source="https://github.com/leoribeiro/struc2vec",
            digest="3ad707057112727cabae39b91ef2bafb06746fd6cdf3816bd983f66504ce1c8c",
        ),
        DatasetInfo(
            "pubmed",
            "papers on diabetes, citations, type of diabetes",
            *(19717, 44324, 500, 3),
            converter="gsebo.data.datasets.raw:convert_pubmed",
            licence="repository MIT; data of LINQS and NLM, no licence stated",
            source=_PLANETOID_SOURCE,
            digest="14f5d2ecdd532676702bf59aed072cb0f72a56ffebea822e7cf24105cf3a268c",
        ),
        DatasetInfo(
            "amazon-computers",
            "computer goods of Amazon, bought together, category",
            *(13752, 245861, 767, 10),
            licence="repositories MIT (gnn-benchmark, GraphData); data none stated",
            source="https://github.com/EdisonLeeeee/GraphData",
            digest="b2d02a39ff0c79631a21445fe94dd9406aaa25cd2841a820bc3fcf3d5d402cc6",
            default_split="random:10/20/70",
        ),
        DatasetInfo(
            "minesweeper",
            "cells of a drawn board of 100 by 100, neighbors, mine or not",
            *(10000, 39402, 7, 2),
            licence="MIT",
            source=_HETEROPHILOUS_SOURCE,
            digest="4397decccc8222bf331563664d9b5f8e28a630633668345167fb91d132432844",
            default_split="file:seed",
        ),
        DatasetInfo(
            "texas",
            "web pages of the University of Texas, links, kind of page",
            *(183, 279, 1703, 5),
            licence="repository MIT; data of WebKB, no licence stated",
            source=_HETEROPHILOUS_SOURCE,
            digest="bb2dd649fc0bd662ad427735d02c6807d413601f4180cbcb0050507913d46dba",
            default_split="file:seed",
        ),
        DatasetInfo(
            "wordnet-lexname",
            "meanings of English words, relations, lexicographer's file",
            *(117659, 174582, 3000, 45),
            licence="WordNet 3.0 licence: free to use, change and pass on with notice",
            source="https://packages.debian.org/wordnet-base (3.0), own construction",
            digest="47bcc7e8b51bfb2630a2036ae1000640dcb174dc239ac8e8302fb069832a2262",
            default_split="random:10/20/70",
        ),
        DatasetInfo(
            "blogcatalog",
            "bloggers, followers, interest",
            *(5196, 171743, 8189, 6),
            licence=_GAUG_LICENCE,
            source=_GAUG_SOURCE,
            digest="81486a41e3e33861e738b9fef97a3d0a94e4c76235fe3609d2dbb39f6a08236c",
        ),
        DatasetInfo(
            "flickr",
            "users who share photographs, contacts, group joined",
            *(7575, 239738, 12047, 9),
            licence=_GAUG_LICENCE,
            source=_GAUG_SOURCE,
            digest="bf45aff8556083d137fcce99e09bcf62413cf17b46c86d820cb2fae59b459b4b",
        ),
        DatasetInfo(
            "dblp",
            "authors, papers and venues; an author's field",
            *(7305, 9908, 334, 4),
            licence=_HGSL_LICENCE,
            source=_HGSL_SOURCE,
            digest="9348a86df874c2fdae717fc1293f0803e2ad15631ea317be28f314b997628398",
            folder="hetero",
            stem="dblp-hgsl",
            reader=_HGSL_READER,
        ),
        DatasetInfo(
            "yelp",
            "businesses, users, services and stars; kind of business",
            *(3913, 36066, 82, 3),
            licence=_HGSL_LICENCE,
            source=_HGSL_SOURCE,
            digest="a3a1cd66a302823368d118423fa3fc9220c29c24edae99c063546a23636a9fc4",
            folder="hetero",
            stem="yelp-hgsl",
            reader=_HGSL_READER,
        ),
        *(_attacked(name, *facts) for name, facts in _ATTACKED.items()),
    )
}
"""Published graphs by name, as ``load_data`` takes them."""


@dataclass(frozen=True)
class GeneratedInfo(GraphInfo):
    """A graph that is the same wherever it is drawn, by ``place`` or what it names."""

    place: str | Callable[[], "Graph"]

    def make(self) -> "Graph":
        """Draw it."""
        drawn: Graph = imported(self.place)()
        return drawn


GENERATED: dict[str, GeneratedInfo] = {
    "planted": GeneratedInfo(
        "planted",
        "two communities, 30 % wrong edges",
        *(400, 1600, 32, 2),
        place="gsebo.data.synthetic.planted:planted",
    ),
}
"""Graphs that are drawn, by name."""


TABLES = (".csv", ".tsv", ".txt", ".parquet")
"""How the names of edge lists and node tables end."""

FORMATS: Registry[Callable[..., "Graph"]] = Registry(
    {
        ".npz": "gsebo.data.formats.npz:load_npz",
        **dict.fromkeys(TABLES, "gsebo.data.formats.tables:load_tables"),
    }
)
"""What reads a file of one graph, by the suffix of its name."""


def is_table(name_or_path: str | PathLike[str]) -> bool:
    """Whether this is called as edge lists are."""
    return os.path.splitext(name_or_path)[1].lower() in TABLES


def is_tables_folder(path: str | PathLike[str]) -> bool:
    """Whether this is a folder with tables of nodes or edges of a type.

    They are called ``nodes.TYPE.csv`` and ``edges.SOURCE.NAME.TARGET.csv``.
    """
    try:
        names = os.listdir(os.path.expanduser(path))
    except (OSError, TypeError, ValueError):
        return False
    return MANIFEST not in names and any(
        name.startswith(("nodes.", "edges.")) and name.count(".") > 1
        for name in names
        if is_table(name)
    )


def require_known_graph(name: str) -> None:
    """Raise for what is neither the name of a graph nor a path."""
    is_path = is_graph_path(name) or os.path.isdir(name)
    if not is_path and normalise(name) not in GENERATED:
        own_name("dataset", name, DATASETS)


def is_graph_folder(path: str | PathLike[str]) -> bool:
    """Whether there is a folder with something that is called as a manifest is.

    Args:
        path: Of anything, or of nothing.
    """
    try:
        return os.path.lexists(Path(os.path.expanduser(path)) / MANIFEST)
    except ValueError:
        # No path at all.
        return False


def is_graph_path(name_or_path: str | PathLike[str]) -> bool:
    """Whether this can only be meant as the path of a file."""
    if not isinstance(name_or_path, str | PathLike):
        raise InvalidInput(
            f"{name_or_path!r:.40} given as a graph: expected a name or a path."
        )
    if not isinstance(name_or_path, str):
        return True
    return (
        os.path.splitext(name_or_path)[1].lower() in FORMATS
        or any(separator in name_or_path for separator in ("/", os.sep))
        or os.path.isfile(name_or_path)
    )


def locate(
    name: str, data_dir: str | PathLike[str] | None = None
) -> tuple[Where, Path]:
    """Find the file of a dataset: given folder, user's cache, inside the package.

    The given folder is by default that of the environment's ``GSEBO_DATA``. The path of
    an absent one is its place in the cache.

    Args:
        name: Of a registered dataset.
        data_dir: A folder to look in first.
    """
    info = lookup("dataset", name, DATASETS)
    places: list[tuple[Where, Path]] = [
        ("cache", cache_folder() / info.file),
        ("embedded", _EMBEDDED / info.file),
    ]
    given = os.environ.get("GSEBO_DATA") if data_dir is None else os.fspath(data_dir)
    if given:
        folder = Path(os.path.expanduser(given))
        if not os.path.isdir(folder):
            origin = "GSEBO_DATA" if data_dir is None else "data_dir"
            raise InvalidInput(
                f"{origin} is {given!r:.200}: expected an existing folder."
            )
        for place in dict.fromkeys((folder, folder / info.folder)):
            places.insert(0, ("data_dir", place / info.file))
    for where, path in places:
        if os.path.isfile(path):
            return where, path
    return "absent", cache_folder() / info.file


def cache_folder() -> Path:
    """Return the folder for downloads: ``GSEBO_CACHE`` or the user's usual cache."""
    own = os.environ.get("GSEBO_CACHE")
    if own:
        return Path(os.path.expanduser(own))
    usual = os.environ.get("XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "gsebo"
