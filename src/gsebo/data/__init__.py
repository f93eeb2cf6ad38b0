"""Where graphs come from: datasets, file formats, splits, noise, generators."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.data.datasets.load import Verification as Verification
    from gsebo.data.datasets.load import content_digest as content_digest
    from gsebo.data.datasets.load import download_dataset as download_dataset
    from gsebo.data.datasets.load import load as load
    from gsebo.data.datasets.load import verify as verify
    from gsebo.data.datasets.registry import DATASETS as DATASETS
    from gsebo.data.datasets.registry import FORMATS as FORMATS
    from gsebo.data.datasets.registry import GENERATED as GENERATED
    from gsebo.data.datasets.registry import DatasetInfo as DatasetInfo
    from gsebo.data.datasets.registry import is_graph_folder as is_graph_folder
    from gsebo.data.datasets.registry import locate as locate
    from gsebo.data.formats.npz import load_npz as load_npz
    from gsebo.data.formats.npz import save_npz as save_npz
    from gsebo.data.noise.kinds import add_inter_class_edges as add_inter_class_edges
    from gsebo.data.noise.registry import NOISE_KINDS as NOISE_KINDS
    from gsebo.data.noise.registry import NoiseKind as NoiseKind
    from gsebo.data.noise.registry import NoiseSpec as NoiseSpec
    from gsebo.data.noise.registry import apply_noise as apply_noise
    from gsebo.data.noise.registry import edges_appended as edges_appended
    from gsebo.data.noise.registry import level_in_words as level_in_words
    from gsebo.data.noise.registry import noise_in_words as noise_in_words
    from gsebo.data.noise.registry import noise_parts as noise_parts
    from gsebo.data.noise.registry import noise_spec as noise_spec
    from gsebo.data.splits import apply_split as apply_split
    from gsebo.data.splits import is_drawn as is_drawn
    from gsebo.data.splits import visible_part as visible_part
    from gsebo.data.synthetic.planted import generate_graph as generate_graph
    from gsebo.data.validate import num_classes as num_classes
    from gsebo.data.validate import validate as validate

make_lazy(__name__)
