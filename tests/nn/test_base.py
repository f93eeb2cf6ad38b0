"""What every native backbone promises, whatever its layers are."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from gsebo.nn.base import Backbone, glorot
from gsebo.sparse import Noise, Pattern, reference_kernels

from .examples import (
    CLASSES,
    KINDS,
    NATIVE,
    Example,
    assert_equal,
    example,
    native,
    run,
)

GRAPHS = [name for name in NATIVE if name != "mlp"]
# In these an entry of strength zero is the same as none.
ABSENT_AT_ZERO = [
    name for name in GRAPHS if "gat" not in name and name not in ("magna", "han")
]
# In these all nodes hear of each other, through the mean of a channel.
EVERYWHERE = ("gcn, batch norm",)
names = pytest.mark.parametrize("name", NATIVE)
graph_names = pytest.mark.parametrize("name", GRAPHS)
kinds = pytest.mark.parametrize("kind", KINDS)


def uneven(model: Backbone, pattern: Pattern) -> Tensor:
    """Strengths that all differ and lie inside (0, 1)."""
    generator = torch.Generator().manual_seed(2)
    scale = torch.rand(pattern.num_entries, generator=generator, dtype=torch.float64)
    return model.initial_strength(pattern) * (0.3 + 0.6 * scale)


@names
@kinds
def test_no_strengths_are_the_initial_strengths(name: str, kind: str) -> None:
    model, given = native(name), example(kind)
    start = model.initial_strength(given.pattern(model.self_loops))
    assert ((start > 0) & (start <= 1)).all()
    assert start.dtype == torch.float64
    out = run(model, given, given.x)
    assert out.shape == (given.num_nodes, CLASSES)
    assert torch.equal(out, run(model, given, given.x, strengths=start))


@names
@kinds
def test_sparse_features_equal_dense_ones(name: str, kind: str) -> None:
    model, given = native(name), example(kind)
    assert_equal(run(model, given, given.sparse_x), run(model, given, given.x))


@names
def test_kernels_agree(name: str) -> None:
    model, given = native(name), example("directed")
    noise = Noise(1, 2)
    ours = run(model, given, given.sparse_x, noise=noise)
    with reference_kernels():
        assert_equal(ours, run(model, given, given.sparse_x, noise=noise))


@names
def test_equal_strengths_per_layer_equal_shared_ones(name: str) -> None:
    model, given = native(name), example("directed")
    shared = uneven(model, given.pattern(model.self_loops))
    layers = shared.expand(model.num_propagations, -1)
    for noise in (None, Noise(0, 1)):
        one, other = (
            run(model, given, given.x, strengths=each, noise=noise)
            for each in (shared, layers)
        )
        assert torch.equal(one, other)


@graph_names
def test_each_layer_reads_its_own_strengths(name: str) -> None:
    model, given = native(name), example("undirected")
    shared = uneven(model, given.pattern(model.self_loops))
    base = run(model, given, given.x, strengths=shared)
    for layer in range(model.num_propagations):
        layers = shared.repeat(model.num_propagations, 1)
        layers[layer] *= 0.5
        assert not torch.allclose(base, run(model, given, given.x, strengths=layers))


@names
@kinds
def test_zero_strengths_are_no_propagation(name: str, kind: str) -> None:
    """Then a node's logits depend on nothing but its own features, in any graph."""
    model, given = native(name), example(kind)
    lonely = Example(given.edge_index[:, :0], given.x, given.y)

    def silent(graph: Example) -> Tensor:
        pattern = graph.pattern(model.self_loops)
        zeros = torch.zeros(pattern.num_entries, dtype=torch.float64)
        return run(model, graph, graph.x, strengths=zeros)

    out = silent(given)
    assert torch.equal(out, silent(lonely))
    if name in EVERYWHERE:
        return
    changed = Example(given.edge_index, given.x.clone(), given.y)
    changed.x[0] += 1
    assert torch.equal(out[1:], silent(changed)[1:])


@pytest.mark.parametrize("name", ABSENT_AT_ZERO)
@kinds
def test_a_strength_of_zero_removes_the_edge(name: str, kind: str) -> None:
    model, given = native(name), example(kind)
    strengths = uneven(model, given.pattern(model.self_loops))
    gone = 5
    kept = torch.arange(given.edge_index.shape[1]) != gone
    fewer = Example(given.edge_index[:, kept], given.x, given.y)
    present = torch.cat([kept, kept.new_ones(strengths.numel() - kept.numel())])
    assert_equal(
        run(model, given, given.x, strengths=strengths * present),
        run(model, fewer, given.x, strengths=strengths[present]),
    )


@names
@kinds
def test_permuting_nodes_permutes_the_output(name: str, kind: str) -> None:
    model, given = native(name), example(kind)
    order = torch.randperm(given.num_nodes, generator=torch.Generator().manual_seed(4))
    moved = given.permuted(order)
    assert_equal(run(model, moved, moved.x), run(model, given, given.x)[order])


@names
@pytest.mark.parametrize("sparse", [False, True])
def test_noise_names_the_randomness(name: str, sparse: bool) -> None:
    model, given = native(name), example("undirected")
    features = given.sparse_x if sparse else given.x
    noisy = run(model, given, features, noise=Noise(3, 7))
    assert torch.equal(noisy, run(model, given, features, noise=Noise(3, 7)))
    quiet = run(model, given, features)
    assert torch.equal(quiet, run(model, given, features))
    others = [Noise(3, 8), Noise(4, 7)]
    for other in (quiet, *(run(model, given, features, noise=each) for each in others)):
        assert not torch.allclose(noisy, other)


@names
def test_modes_and_global_randomness_have_no_effect(name: str) -> None:
    model, given = native(name), example("undirected")
    noise = Noise(1, 1)
    first = run(model.train(), given, given.x, noise=noise)
    state = torch.get_rng_state()
    assert torch.equal(first, run(model.eval(), given, given.x, noise=noise))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", [name for name in NATIVE if name != "rgcn"])
def test_no_dropout_no_noise(name: str) -> None:
    model, given = native(name), example("directed")
    for module in model.modules():
        for key, value in vars(module).items():
            if key.endswith("dropout") and isinstance(value, float):
                setattr(module, key, 0.0)
    out = run(model, given, given.x)
    assert torch.equal(out, run(model, given, given.x, noise=Noise(1, 1)))


@names
def test_inputs_are_left_alone(name: str) -> None:
    model, given = native(name), example("directed")
    strengths = uneven(model, given.pattern(model.self_loops))
    x, copy = given.x.clone(), strengths.clone()
    run(model, given, given.x, strengths=strengths, noise=Noise(0, 0))
    assert torch.equal(given.x, x)
    assert torch.equal(strengths, copy)


@names
def test_hypergradient_through_a_step(name: str) -> None:
    """Equals central finite differences: one step of SGD, every entry and layer."""
    model, given = native(name), example("directed", num_nodes=8, num_edges=9)
    pattern, features = given.pattern(model.self_loops), given.sparse_x
    weights = {key: each.detach() for key, each in model.named_parameters()}
    start = uneven(model, pattern).repeat(model.num_propagations, 1)

    def loss(weights: dict[str, Tensor], strengths: Tensor, nodes: slice) -> Tensor:
        logits = functional_call(
            model, weights, (features, pattern, strengths, Noise(5, 6))
        )
        return cross_entropy(logits[nodes], given.y[nodes])

    def outer(strengths: Tensor) -> Tensor:
        """Validation loss after a training step at these strengths."""
        leaves = {key: each.clone().requires_grad_() for key, each in weights.items()}
        gradients = torch.autograd.grad(
            loss(leaves, strengths, slice(0, 4)),
            list(leaves.values()),
            create_graph=True,
            materialize_grads=True,
        )
        moved = {
            key: leaf - 2.0 * gradient
            for (key, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }
        return loss(moved, strengths, slice(4, None))

    strengths = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        outer(strengths), strengths, materialize_grads=True
    )
    assert gradient.any() == (name != "mlp")
    differences = torch.empty_like(start)
    step = 1e-6
    for place in torch.cartesian_prod(*(torch.arange(size) for size in start.shape)):
        shift = torch.zeros_like(start)
        shift[tuple(place)] = step
        up, down = outer(start + shift), outer(start - shift)
        differences[tuple(place)] = (up - down).detach() / (2 * step)
    torch.testing.assert_close(gradient, differences, rtol=1e-5, atol=1e-8)


@names
def test_every_parameter_is_used(name: str) -> None:
    model, given = native(name), example("undirected")
    run(model, given, given.x).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        if name == "han" and key.startswith(("compared", "queries")):
            continue  # There is but one relation to attend to.
        assert parameter.grad.any(), key


@pytest.mark.parametrize("shape", [(7, 5), (4, 7, 2), (2, 3, 4, 5)])
def test_glorot_fills_each_matrix_within_its_bound(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = glorot(*shape)
    bound = (6 / (shape[-2] + shape[-1])) ** 0.5
    assert values.shape == shape
    assert values.requires_grad
    largest = float(values.detach().abs().max())
    assert bound / 2 < largest <= bound
