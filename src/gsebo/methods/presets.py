"""Named sets of parameters per backbone, for those who want a paper's setting.

A preset only holds what differs from the constructor's defaults.
"""

from typing import Any

from gsebo.lookup import lookup, normalise

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # The paper: hidden width 16, dropout 0.5, learning rates 0.01, λ = 5e-4, τ from
    # {5, 10, 15, 20, 25}. JK-Net has three layers there.
    "paper": {
        "gcn": {},
        "gat": {},
        "sage": {},
        "sage-gcn": {},
        "jk": {"num_layers": 3},
        "jk-sage": {"num_layers": 3},
        "mlp": {},
    },
}


def preset_parameters(preset: str, backbone: str) -> dict[str, Any]:
    """Parameters of a preset for one backbone; none for one it does not name."""
    by_backbone = lookup("preset", preset, PRESETS)
    return dict(by_backbone.get(normalise(backbone), {}))
