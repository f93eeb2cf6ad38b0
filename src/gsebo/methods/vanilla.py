"""The backbone as it is, trained on the given graph."""

from collections.abc import Sequence
from typing import Any, final

from torch import nn
from torch_geometric.data import Data

from gsebo.bilevel import make_optimizer
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.parameters import require_choice, require_count, require_not_negative
from gsebo.methods.schedule import Trained, train_on_fixed_structure
from gsebo.training.stopping import SelectBy


@final
class Vanilla(GraphClassifier):
    """Plain training of a backbone, the baseline of every comparison.

    Args:
        backbone: Name, class or instance of a backbone or of a PyG model.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Rate of dropout.
        inner_lr: Learning rate of the weights.
        inner_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        max_epochs: Number of training steps at most.
        evaluate_every: Steps between two looks at the validation nodes.
        patience: Looks without a better one before stopping.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``.
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
        inner_lr: float = 0.01,
        inner_optimizer: str = "adam",
        weight_decay: float = 5e-4,
        max_epochs: int = 200,
        evaluate_every: int = 1,
        patience: int = 200,
        select_by: SelectBy = "loss",
        backbone_options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.backbone = backbone
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.inner_lr = inner_lr
        self.inner_optimizer = inner_optimizer
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.evaluate_every = evaluate_every
        self.patience = patience
        self.select_by = select_by
        self.backbone_options = backbone_options
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        require_count(
            max_epochs=self.max_epochs,
            evaluate_every=self.evaluate_every,
            patience=self.patience,
        )
        require_not_negative(inner_lr=self.inner_lr, weight_decay=self.weight_decay)
        require_choice("select_by", self.select_by, ("loss", "accuracy"))
        make_optimizer(self.inner_optimizer, self.inner_lr)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Trained]:
        return train_on_fixed_structure(
            data,
            runs,
            self.network(),
            weight_decay=self.weight_decay,
            optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.evaluate_every,
            max_training_steps=self.max_epochs,
            patience=self.patience,
            select_by=self.select_by,
            stop_on="val",
        )
