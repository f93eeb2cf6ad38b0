"""Is the hypergradient of a model on a graph right? Ask finite differences."""

import copy

import torch

from gsebo.bilevel import (
    HypergradientCheck,
    check_problem,
    make_hypergradient,
    make_optimizer,
)
from gsebo.data import validate
from gsebo.errors import InvalidInput
from gsebo.graph.graph import GraphLike, as_graph
from gsebo.methods.fitting import PreparedGraph
from gsebo.methods.gsebo import GSEBO


def check_hypergradient(
    model: GSEBO,
    data: GraphLike,
    *,
    inner_steps: int | None = None,
    directions: int = 3,
    epsilon: float = 1e-6,
) -> HypergradientCheck:
    """Compare a model's hypergradient with finite differences, in float64.

    Use it before trusting a backbone of your own: some operators are silently wrong in
    second order.

    Args:
        model: An estimator; it need not be fitted, and is not changed.
        data: A graph, better a small one: each direction trains twice.
        inner_steps: Number of inner steps; the model's own by default.
        directions: How many random directions in the space of strengths are tried.
        epsilon: Half the distance of the two trainings.

    Raises:
        InvalidInput: The model or the graph cannot be used, or nothing is learned.

    Returns:
        Both derivatives along each direction, and their ``relative_error``.
    """
    model.check_parameters()
    data = as_graph(data)
    validate(data)
    exact = copy.copy(data)
    exact.x = data.x.double()
    seed = 0 if model.random_state is None else int(model.random_state)
    prepared = PreparedGraph(exact, torch.device("cpu"))
    problem = model.make_problem(prepared, seed)
    outer = problem.initial_outer()
    if not outer:
        raise InvalidInput(
            f"structure={model.structure!r} has nothing to learn; expected one with "
            "parameters, such as 'edge'."
        )
    return check_problem(
        problem,
        make_optimizer(model.inner_optimizer, model.inner_lr),
        problem.initial_weights(),
        outer,
        model.inner_steps if inner_steps is None else inner_steps,
        hypergradient=make_hypergradient(
            model.hypergradient, direct_term=model.direct_term
        ),
        directions=directions,
        epsilon=epsilon,
    )
