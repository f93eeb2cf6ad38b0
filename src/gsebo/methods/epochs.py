"""The parameters that all methods share which train a network for some epochs."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data

from gsebo.bilevel import Optimizer, make_optimizer
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import require_choice, require_count, require_not_negative
from gsebo.methods.schedule import Schedule, train_jointly
from gsebo.training import JointProblem, Task
from gsebo.training.stopping import SELECT_BY, SelectBy


@dataclass(eq=False, repr=False)
class EpochClassifier(GraphClassifier):
    """A method that trains the weights of a network for a number of epochs.

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
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``
            (``"first_accuracy"``: of equal ones the first), or the ``"last"``.
        backbone_options: Further arguments of the backbone.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed; ``None`` draws one.
    """

    backbone: str | type | nn.Module = "gcn"
    _: KW_ONLY
    hidden_channels: int = 16
    num_layers: int = 2
    dropout: float = 0.5
    inner_lr: float = 0.01
    inner_optimizer: str = "adam"
    weight_decay: float = 5e-4
    max_epochs: int = 200
    evaluate_every: int = 1
    patience: int = 200
    select_by: SelectBy = "loss"
    backbone_options: dict[str, Any] | None = None
    device: str = "auto"
    random_state: int | None = None

    def _check_parameters(self) -> None:
        require_count(
            max_epochs=self.max_epochs,
            evaluate_every=self.evaluate_every,
            patience=self.patience,
        )
        require_not_negative(inner_lr=self.inner_lr, weight_decay=self.weight_decay)
        require_choice("select_by", self.select_by, SELECT_BY)
        make_optimizer(self.inner_optimizer, self.inner_lr)

    def schedule(self, optimizer: Optimizer | None = None) -> Schedule:
        """How the parameters say that weights are trained.

        Args:
            optimizer: Used instead of the one that the parameters name.
        """
        return Schedule(
            weight_decay=self.weight_decay,
            optimizer=optimizer or make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.evaluate_every,
            max_training_steps=self.max_epochs,
            patience=self.patience,
            select_by=self.select_by,
        )

    def train_jointly(
        self,
        data: Data,
        runs: Sequence[Run],
        make: Callable[[Task, Run], JointProblem],
        *,
        optimizer: Optimizer | None = None,
        structure_optimizer: Optimizer | None = None,
        weight_steps: int = 1,
        in_turns: bool = False,
    ) -> list[Outcome]:
        """Train weights and a structure together, as the parameters say."""
        return train_jointly(
            data,
            runs,
            self.network(),
            self.schedule(optimizer),
            make,
            structure_optimizer=structure_optimizer,
            weight_steps=weight_steps,
            in_turns=in_turns,
        )
