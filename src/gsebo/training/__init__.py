"""The only loops over epochs, with early stopping, history and checkpoints."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.training.checkpoint import Checkpoint as Checkpoint
    from gsebo.training.history import Patience as Patience
    from gsebo.training.history import Progress as Progress
    from gsebo.training.history import StepRecord as StepRecord
    from gsebo.training.history import Watcher as Watcher
    from gsebo.training.joint import JointProblem as JointProblem
    from gsebo.training.joint import Member as Member
    from gsebo.training.joint import train_together as train_together
    from gsebo.training.loop import LoopSettings as LoopSettings
    from gsebo.training.networks import Division as Division
    from gsebo.training.networks import Folds as Folds
    from gsebo.training.networks import FullBatch as FullBatch
    from gsebo.training.networks import Networks as Networks
    from gsebo.training.networks import Redrawn as Redrawn
    from gsebo.training.problem import NodeClassification as NodeClassification
    from gsebo.training.problem import Task as Task
    from gsebo.training.trainer import train_structure as train_structure
    from gsebo.training.trainer import train_weights as train_weights

make_lazy(__name__)
