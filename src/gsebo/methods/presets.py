"""Named sets of parameters per backbone, for those who want a paper's setting.

A preset only holds what differs from the constructor's defaults.
"""

from typing import Any

from gsebo.lookup import lookup, normalise

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # The paper: hidden width 16, dropout 0.5, learning rates 0.01, λ = 5e-4, and τ
    # searched. Here τ in {10, 20} and strengths shared or per layer were searched on a
    # half of the validation nodes that no outer step saw, one choice per backbone for
    # all four datasets (results/preset_search.jsonl); what is within 0.2 points of the
    # best is a tie and goes to shared strengths and fewer steps. JK-Net has three
    # layers there.
    "paper": {
        "gcn": {"inner_steps": 20, "per_layer": True},
        "gat": {},
        "sage": {},
        "sage-gcn": {},
        "jk": {"num_layers": 3, "inner_steps": 20},
        "jk-sage": {"num_layers": 3, "inner_steps": 20, "per_layer": True},
        "mlp": {},
    },
}


def preset_parameters(preset: str, backbone: str) -> dict[str, Any]:
    """Parameters of a preset for one backbone; none for one it does not name."""
    by_backbone = lookup("preset", preset, PRESETS)
    return dict(by_backbone.get(normalise(backbone), {}))
