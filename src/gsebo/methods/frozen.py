"""GSEBO's schedule with the structure frozen: the control for its training dynamics."""

from collections.abc import Sequence
from typing import Any, final

from torch import nn
from torch_geometric.data import Data

from gsebo.bilevel import make_optimizer
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import require_choice, require_count, require_not_negative
from gsebo.methods.schedule import Schedule, StopOn, train_on_fixed_structure
from gsebo.training.stopping import SELECT_BY, SelectBy


@final
class Frozen(GraphClassifier):
    """What GSEBO gains without touching a single edge.

    The same inner steps, the same looks at validation, the same early stopping and
    selection as :class:`~gsebo.GSEBO`, but the strengths stay at their start. The
    difference to GSEBO is what the structure is worth.

    Args:
        backbone: Name, class or instance of a backbone or of a PyG model.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Rate of dropout.
        inner_steps: Inner steps per outer step (τ).
        inner_lr: Learning rate of the weights.
        inner_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        max_outer_steps: Number of outer steps at most.
        patience: Outer steps without a better one before stopping.
        stop_on: ``"val"``: all validation nodes decide; ``"holdout"``: a random half.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``
            (``"first_accuracy"``: of equal ones the first), or the ``"last"``.
        backbone_options: Further arguments of the backbone.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed; ``None`` draws one.
    """

    def __init__(
        self,
        backbone: str | type | nn.Module = "gcn",
        *,
        hidden_channels: int = 16,
        num_layers: int = 2,
        dropout: float = 0.5,
        inner_steps: int = 10,
        inner_lr: float = 0.01,
        inner_optimizer: str = "adam",
        weight_decay: float = 5e-4,
        max_outer_steps: int = 100,
        patience: int = 20,
        stop_on: StopOn = "val",
        select_by: SelectBy = "loss",
        backbone_options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.backbone = backbone
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.inner_steps = inner_steps
        self.inner_lr = inner_lr
        self.inner_optimizer = inner_optimizer
        self.weight_decay = weight_decay
        self.max_outer_steps = max_outer_steps
        self.patience = patience
        self.stop_on = stop_on
        self.select_by = select_by
        self.backbone_options = backbone_options
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        require_count(
            inner_steps=self.inner_steps,
            max_outer_steps=self.max_outer_steps,
            patience=self.patience,
        )
        require_not_negative(inner_lr=self.inner_lr, weight_decay=self.weight_decay)
        require_choice("stop_on", self.stop_on, ("val", "holdout"))
        require_choice("select_by", self.select_by, SELECT_BY)
        make_optimizer(self.inner_optimizer, self.inner_lr)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        schedule = Schedule(
            weight_decay=self.weight_decay,
            optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.inner_steps,
            max_training_steps=self.inner_steps * self.max_outer_steps,
            patience=self.patience,
            select_by=self.select_by,
            stop_on=self.stop_on,
        )
        return train_on_fixed_structure(data, runs, self.network(), schedule)
