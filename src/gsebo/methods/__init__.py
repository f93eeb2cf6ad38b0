"""Estimators: one paper or control each."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.methods.amortised import Amortised as Amortised
    from gsebo.methods.amortised import Inoculated as Inoculated
    from gsebo.methods.auto.auto import Auto as Auto
    from gsebo.methods.base import GraphClassifier as GraphClassifier
    from gsebo.methods.baselines.adaedge import AdaEdge as AdaEdge
    from gsebo.methods.baselines.bgcn import BGCN as BGCN
    from gsebo.methods.baselines.denne import DenNE as DenNE
    from gsebo.methods.baselines.dropedge import DropEdge as DropEdge
    from gsebo.methods.baselines.gaug.gaug_m import GAugM as GAugM
    from gsebo.methods.baselines.gaug.gaug_o import GAugO as GAugO
    from gsebo.methods.baselines.gen import GEN as GEN
    from gsebo.methods.baselines.grcn import GRCN as GRCN
    from gsebo.methods.baselines.hgsl.hgsl import HGSL as HGSL
    from gsebo.methods.baselines.idgl import IDGL as IDGL
    from gsebo.methods.baselines.lds import LDS as LDS
    from gsebo.methods.baselines.magna import MAGNA as MAGNA
    from gsebo.methods.baselines.neuralsparse import NeuralSparse as NeuralSparse
    from gsebo.methods.baselines.prognn import ProGNN as ProGNN
    from gsebo.methods.baselines.ptdnet import PTDNet as PTDNet
    from gsebo.methods.baselines.slaps import SLAPS as SLAPS
    from gsebo.methods.baselines.stable import STABLE as STABLE
    from gsebo.methods.baselines.sublime import SUBLIME as SUBLIME
    from gsebo.methods.baselines.vgcn import VGCN as VGCN
    from gsebo.methods.check import check_hypergradient as check_hypergradient
    from gsebo.methods.controls import Frozen as Frozen
    from gsebo.methods.controls import MLPControl as MLPControl
    from gsebo.methods.controls import Retrain as Retrain
    from gsebo.methods.controls import SingleLevel as SingleLevel
    from gsebo.methods.controls import TrainVal as TrainVal
    from gsebo.methods.controls import Vanilla as Vanilla
    from gsebo.methods.defences.gcn_jaccard import GCNJaccard as GCNJaccard
    from gsebo.methods.defences.gcn_svd import GCNSVD as GCNSVD
    from gsebo.methods.defences.gnnguard import GNNGuard as GNNGuard
    from gsebo.methods.defences.rgcn import RGCN as RGCN
    from gsebo.methods.defences.soft_median import SoftMedian as SoftMedian
    from gsebo.methods.grid_search import SearchResult as SearchResult
    from gsebo.methods.grid_search import search as search
    from gsebo.methods.gsebo import GSEBO as GSEBO
    from gsebo.methods.registry import METHODS as METHODS
    from gsebo.methods.registry import MethodInfo as MethodInfo
    from gsebo.methods.saving import load_model as load_model
    from gsebo.methods.schedule import EpochClassifier as EpochClassifier

make_lazy(__name__)
