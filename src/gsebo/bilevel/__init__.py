"""Bilevel optimisation on trees of tensors: inner optimisers and hypergradients."""

from .adam import adam as adam
from .check import HypergradientCheck as HypergradientCheck
from .check import check_hypergradient as check_hypergradient
from .first_order import FirstOrder as FirstOrder
from .hypergradient import Hypergradient as Hypergradient
from .hypergradient import HypergradientStep as HypergradientStep
from .hypergradient import Iterate as Iterate
from .hypergradient import begin as begin
from .implicit import Implicit as Implicit
from .optimizer import Optimizer as Optimizer
from .optimizer import State as State
from .optimizers import OPTIMIZERS as OPTIMIZERS
from .optimizers import make_optimizer as make_optimizer
from .problem import BilevelProblem as BilevelProblem
from .registry import HYPERGRADIENTS as HYPERGRADIENTS
from .registry import make_hypergradient as make_hypergradient
from .reverse import Reverse as Reverse
from .scheduled import clipped as clipped
from .scheduled import scheduled as scheduled
from .sgd import momentum as momentum
from .sgd import sgd as sgd
from .tree import Tree as Tree
from .unrolled import Unrolled as Unrolled
