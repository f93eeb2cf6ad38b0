"""Networks on a dense graph, in which an absent edge is an entry of strength 0."""

import copy
from dataclasses import replace

from gsebo.backbone import Backbone
from gsebo.backbone.gat import GAT, GATLayer
from gsebo.backbone.gcn import GCN
from gsebo.backbone.jk import JKNet
from gsebo.backbone.mlp import MLP
from gsebo.backbone.sage import SAGE
from gsebo.training import Task


def can_leave_out(backbone: Backbone) -> bool:
    """Whether an edge of weight 0 can be the same as no edge for a network.

    A network from elsewhere counts its neighbours itself, whatever their weights.
    """
    return isinstance(backbone, GCN | SAGE | JKNet | GAT | MLP)


def leaving_out(task: Task) -> Task:
    """The task with attention that passes over edges of strength 0."""
    if not isinstance(task.backbone, GAT):
        return task
    backbone = copy.deepcopy(task.backbone)
    for layer in _attention_layers(backbone):
        layer.renormalise = True
    return replace(task, backbone=backbone)


def num_heads(backbone: Backbone) -> int:
    """Matrices of attention that one pass computes, 0 without attention."""
    return sum(layer.heads for layer in _attention_layers(backbone))


def _attention_layers(backbone: Backbone) -> list[GATLayer]:
    return [layer for layer in backbone.modules() if isinstance(layer, GATLayer)]
