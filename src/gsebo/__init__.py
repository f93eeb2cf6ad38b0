"""Learn how strongly each edge of a graph should count.

>>> import gsebo
>>> data = gsebo.load_data("cora")
>>> model = gsebo.GSEBO(max_outer_steps=2, random_state=0).fit(data)
>>> model.strength_.shape == (data.num_edges,)
True
"""

from gsebo.data import add_inter_class_edges as add_inter_class_edges
from gsebo.data import apply_split as apply_split
from gsebo.data import generate_graph as generate_graph
from gsebo.data import load as load_data
from gsebo.errors import InputWarning as InputWarning
from gsebo.errors import InvalidInput as InvalidInput
from gsebo.methods import GSEBO as GSEBO
from gsebo.methods import Frozen as Frozen
from gsebo.methods import Vanilla as Vanilla
from gsebo.methods import check_hypergradient as check_hypergradient
from gsebo.methods import load_model as load_model
from gsebo.training import Checkpoint as Checkpoint
from gsebo.version import __version__ as __version__

__all__ = [
    "GSEBO",
    "Checkpoint",
    "Frozen",
    "InputWarning",
    "InvalidInput",
    "Vanilla",
    "__version__",
    "add_inter_class_edges",
    "apply_split",
    "check_hypergradient",
    "generate_graph",
    "load_data",
    "load_model",
]
