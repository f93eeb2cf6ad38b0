"""The only loops over epochs, with early stopping, history and checkpoints."""

from gsebo.training.bilevel import train_bilevel as train_bilevel
from gsebo.training.checkpoint import Checkpoint as Checkpoint
from gsebo.training.cross_fit import CrossFit as CrossFit
from gsebo.training.cross_fit import train_cross_fitted as train_cross_fitted
from gsebo.training.division import Division as Division
from gsebo.training.division import Folds as Folds
from gsebo.training.division import Redrawn as Redrawn
from gsebo.training.history import StepRecord as StepRecord
from gsebo.training.history import Watcher as Watcher
from gsebo.training.joint import train_joint as train_joint
from gsebo.training.joint_problem import JointProblem as JointProblem
from gsebo.training.joint_problem import Member as Member
from gsebo.training.loop import LoopSettings as LoopSettings
from gsebo.training.problem import NodeClassification as NodeClassification
from gsebo.training.progress import Progress as Progress
from gsebo.training.stopping import Patience as Patience
from gsebo.training.task import Task as Task
from gsebo.training.together import train_together as train_together
