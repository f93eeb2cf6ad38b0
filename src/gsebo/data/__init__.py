"""Datasets, file formats, splits, noise, and checks of what a user hands in."""

from gsebo.data.canonical import CanonicalGraph as CanonicalGraph
from gsebo.data.canonical import canonicalise as canonicalise
from gsebo.data.digest import content_digest as content_digest
from gsebo.data.download import download_dataset as download_dataset
from gsebo.data.features import normalise_rows as normalise_rows
from gsebo.data.generate import generate_graph as generate_graph
from gsebo.data.load import Verification as Verification
from gsebo.data.load import load as load
from gsebo.data.load import verify as verify
from gsebo.data.locate import locate as locate
from gsebo.data.noise import add_inter_class_edges as add_inter_class_edges
from gsebo.data.npz import load_npz as load_npz
from gsebo.data.npz import save_npz as save_npz
from gsebo.data.planted import GENERATED as GENERATED
from gsebo.data.registry import DATASETS as DATASETS
from gsebo.data.registry import DatasetInfo as DatasetInfo
from gsebo.data.splits import apply_split as apply_split
from gsebo.data.validate import num_classes as num_classes
from gsebo.data.validate import validate as validate
