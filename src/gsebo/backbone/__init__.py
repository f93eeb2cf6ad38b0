"""Networks that classify nodes, given one strength per edge."""

from gsebo.backbone.base import Backbone as Backbone
from gsebo.backbone.base import Features as Features
from gsebo.backbone.gat import GAT as GAT
from gsebo.backbone.gate import gated as gated
from gsebo.backbone.gcn import GCN as GCN
from gsebo.backbone.jk import JKNet as JKNet
from gsebo.backbone.magna import MAGNANet as MAGNANet
from gsebo.backbone.mlp import MLP as MLP
from gsebo.backbone.pyg_adapter import PyGBackbone as PyGBackbone
from gsebo.backbone.registry import BACKBONES as BACKBONES
from gsebo.backbone.registry import make_backbone as make_backbone
from gsebo.backbone.sage import SAGE as SAGE
