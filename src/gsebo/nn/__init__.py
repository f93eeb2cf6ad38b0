"""Networks that classify nodes, given one strength per edge."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.nn.appnp import APPNP as APPNP
    from gsebo.nn.base import Backbone as Backbone
    from gsebo.nn.base import Features as Features
    from gsebo.nn.gat import GAT as GAT
    from gsebo.nn.gcn import GCN as GCN
    from gsebo.nn.gcnii import GCNII as GCNII
    from gsebo.nn.grand import GRAND as GRAND
    from gsebo.nn.jk import JKNet as JKNet
    from gsebo.nn.mlp import MLP as MLP
    from gsebo.nn.pyg.adapter import PyGBackbone as PyGBackbone
    from gsebo.nn.pyg.adapter import gated as gated
    from gsebo.nn.registry import BACKBONES as BACKBONES
    from gsebo.nn.registry import make_backbone as make_backbone
    from gsebo.nn.sage import SAGE as SAGE

make_lazy(__name__)
