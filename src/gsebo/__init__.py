"""Learn how strongly each edge of a graph should count.

>>> import gsebo
>>> data = gsebo.load_data("cora")
>>> model = gsebo.GSEBO(max_outer_steps=2, random_state=0).fit(data)
>>> model.strength_.shape == (data.num_edges,)
True
"""

from typing import TYPE_CHECKING

from gsebo.code_paths import fix_code_paths
from gsebo.code_paths import reproducibility as reproducibility
from gsebo.code_paths import set_reproducible as set_reproducible
from gsebo.errors import InputWarning as InputWarning
from gsebo.errors import InvalidInput as InvalidInput
from gsebo.names import make_lazy
from gsebo.version import __version__ as __version__

if TYPE_CHECKING:
    from gsebo.data import add_inter_class_edges as add_inter_class_edges
    from gsebo.data import apply_noise as apply_noise
    from gsebo.data import apply_split as apply_split
    from gsebo.data import generate_graph as generate_graph
    from gsebo.data.datasets.load import load_data as load_data
    from gsebo.graph import Graph as Graph
    from gsebo.methods import BGCN as BGCN
    from gsebo.methods import GCNSVD as GCNSVD
    from gsebo.methods import GEN as GEN
    from gsebo.methods import GRCN as GRCN
    from gsebo.methods import GSEBO as GSEBO
    from gsebo.methods import HGSL as HGSL
    from gsebo.methods import IDGL as IDGL
    from gsebo.methods import LDS as LDS
    from gsebo.methods import MAGNA as MAGNA
    from gsebo.methods import RGCN as RGCN
    from gsebo.methods import SLAPS as SLAPS
    from gsebo.methods import STABLE as STABLE
    from gsebo.methods import SUBLIME as SUBLIME
    from gsebo.methods import VGCN as VGCN
    from gsebo.methods import AdaEdge as AdaEdge
    from gsebo.methods import Amortised as Amortised
    from gsebo.methods import Auto as Auto
    from gsebo.methods import DenNE as DenNE
    from gsebo.methods import DropEdge as DropEdge
    from gsebo.methods import Frozen as Frozen
    from gsebo.methods import GAugM as GAugM
    from gsebo.methods import GAugO as GAugO
    from gsebo.methods import GCNJaccard as GCNJaccard
    from gsebo.methods import GNNGuard as GNNGuard
    from gsebo.methods import Inoculated as Inoculated
    from gsebo.methods import MLPControl as MLPControl
    from gsebo.methods import NeuralSparse as NeuralSparse
    from gsebo.methods import ProGNN as ProGNN
    from gsebo.methods import PTDNet as PTDNet
    from gsebo.methods import Retrain as Retrain
    from gsebo.methods import SingleLevel as SingleLevel
    from gsebo.methods import SoftMedian as SoftMedian
    from gsebo.methods import TrainVal as TrainVal
    from gsebo.methods import Vanilla as Vanilla
    from gsebo.methods import check_hypergradient as check_hypergradient
    from gsebo.methods import load_model as load_model
    from gsebo.methods import search as search
    from gsebo.report.page.suspects_page import write_page as write_page
    from gsebo.suspects import SuspiciousEdges as SuspiciousEdges
    from gsebo.suspects import missing_edges as missing_edges
    from gsebo.suspects import suspicious_edges as suspicious_edges
    from gsebo.training import Checkpoint as Checkpoint

# Before anything can import torch or numba.
fix_code_paths()

# What needs torch is imported when it is first asked for: the command line must be
# able to start, and reproducible mode to be asked for, before torch is loaded.
make_lazy(__name__)
