"""Bilevel optimisation on trees of tensors: inner optimisers and hypergradients."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.bilevel.check import HypergradientCheck as HypergradientCheck
    from gsebo.bilevel.check import check_problem as check_problem
    from gsebo.bilevel.derivatives import BilevelProblem as BilevelProblem
    from gsebo.bilevel.derivatives import Iterate as Iterate
    from gsebo.bilevel.derivatives import begin as begin
    from gsebo.bilevel.hypergradient import FirstOrder as FirstOrder
    from gsebo.bilevel.hypergradient import Hypergradient as Hypergradient
    from gsebo.bilevel.hypergradient import HypergradientStep as HypergradientStep
    from gsebo.bilevel.hypergradient import Unrolled as Unrolled
    from gsebo.bilevel.implicit import Implicit as Implicit
    from gsebo.bilevel.optimizers import Optimizer as Optimizer
    from gsebo.bilevel.optimizers import State as State
    from gsebo.bilevel.optimizers import adam as adam
    from gsebo.bilevel.optimizers import clipped as clipped
    from gsebo.bilevel.optimizers import momentum as momentum
    from gsebo.bilevel.optimizers import scheduled as scheduled
    from gsebo.bilevel.optimizers import sgd as sgd
    from gsebo.bilevel.registry import HYPERGRADIENTS as HYPERGRADIENTS
    from gsebo.bilevel.registry import OPTIMIZERS as OPTIMIZERS
    from gsebo.bilevel.registry import make_hypergradient as make_hypergradient
    from gsebo.bilevel.registry import make_optimizer as make_optimizer
    from gsebo.bilevel.reverse import Reverse as Reverse
    from gsebo.bilevel.tree import Tree as Tree

make_lazy(__name__)
