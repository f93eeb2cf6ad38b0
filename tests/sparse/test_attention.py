"""Attention: against dense algebra, and as kernel calls against autograd."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, elu, leaky_relu

from gsebo.nn.gat import GAT, attend
from gsebo.sparse import Noise, Pattern, Untraceable, dropout, numba_compile
from gsebo.sparse.operators import keep_mask
from gsebo.sparse.symbol import Strengths, Symbol
from gsebo.tape import Program, Reach, trace

from .patterns import Positions, awkward, large, normal

pytestmark = pytest.mark.compiles

FEATURES, CLASSES, STEP = 6, 3, 4


def heavy() -> Positions:
    """One row with most entries, many rows and columns without any."""
    rows = torch.cat([torch.zeros(70, dtype=torch.int64), torch.arange(1, 21)])
    columns = torch.cat([torch.arange(10, 80), torch.arange(20).roll(7)])
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3))
    return Positions(rows[order], columns[order], 100, 100)


def scattered() -> Positions:
    """Unequal rows, entries twice at one place, the last nodes without any."""
    given = large(60, 300)
    return replace(given, num_rows=65, num_columns=65)


@dataclass(frozen=True)
class Example:
    """A network of attention steps of one shape, and what it is run on."""

    positions: Positions
    heads: int = 3
    channels: int = 5
    layers: int = 2
    rate: float = 0.4
    per_layer: bool = False
    residual: bool = False
    dtype: torch.dtype = torch.float64

    @property
    def pattern(self) -> Pattern:
        return self.positions.pattern

    @property
    def width(self) -> int:
        return self.heads * self.channels

    @property
    def nodes(self) -> Tensor:
        """Those of the loss: the first, some others, the last."""
        last = self.positions.num_rows - 1
        return torch.tensor([5, 0, 3, 17, 12, last])

    @property
    def labels(self) -> Tensor:
        return torch.tensor([0, 2, 1, 1, 0, 2])

    @property
    def features(self) -> Tensor:
        return normal(self.positions.num_rows, FEATURES, dtype=self.dtype)

    @property
    def strengths(self) -> Tensor:
        size = (self.layers,) if self.per_layer else ()
        entries = self.positions.rows.numel()
        return normal(*size, entries, seed=7, dtype=self.dtype).abs()

    def weights(self, seed: int = 1) -> dict[str, Tensor]:
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            before = self.width if layer else FEATURES
            shapes[f"product{layer}"] = before, self.width
            shapes[f"attention{layer}"] = self.heads, self.channels, 2
            shapes[f"bias{layer}"] = (self.width,)
        shapes["output"] = self.width, CLASSES
        return {
            name: normal(*shape, seed=seed + number, dtype=self.dtype)
            / torch.tensor(shape[:-1]).prod().sqrt()
            for number, (name, shape) in enumerate(shapes.items())
        }

    def network(
        self, weights: dict[str, Tensor], x: Tensor, strengths: Tensor, noise: Noise
    ) -> Tensor:
        h = x
        for layer in range(self.layers):
            message = (
                dropout(h, self.rate, noise, 2 * layer) @ weights[f"product{layer}"]
            )
            out = attend(
                self.pattern,
                strengths if strengths.dim() == 1 else strengths[layer],
                message,
                weights[f"attention{layer}"],
                slope=0.2,
                rate=self.rate,
                noise=noise,
                site=2 * layer + 1,
            )
            if self.residual:
                out = out + message
            h = elu(out + weights[f"bias{layer}"])
        return h @ weights["output"]

    def program(self, lanes: int, seeds: list[int]) -> Program:
        weights = self.weights()
        features, strengths = Symbol.of_features(FEATURES, weights), self.per_layer
        scores = self.network(weights, features, Strengths(strengths), Noise(0, 0))
        tape = trace(scores, weights)
        program = Program(
            tape,
            Reach(self.pattern, self.nodes, tape.depth),
            self.features,
            self.labels,
            mean=True,
            seeds=seeds,
            lanes=lanes,
            strength_gradient=True,
        )
        program.strengths.load(self.strengths.view(1, -1, self.strengths.shape[-1]))
        program.weights.value.copy_(flat(self.weights()))
        if lanes == 2:
            program.weights.tangent.copy_(flat(self.weights(seed=50)))
        return program

    def strength_gradient(self, program: Program) -> Tensor:
        layers = self.layers if self.per_layer else 1
        return program.strengths.gradient(layers, self.strengths.shape[-1])


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors.values()])


def check_against_autograd(example: Example, tolerance: float = 1e-9) -> None:
    weights = {name: w.requires_grad_() for name, w in example.weights().items()}
    strengths = example.strengths.requires_grad_()
    output = example.network(weights, example.features, strengths, Noise(3, STEP))
    loss = cross_entropy(output[example.nodes], example.labels)
    leaves = [*weights.values(), strengths]
    *first, to_strength = torch.autograd.grad(loss, leaves, create_graph=True)
    directions = example.weights(seed=50).values()
    slope = sum((g * v).sum() for g, v in zip(first, directions, strict=True))
    *second, to_strength_change = torch.autograd.grad(slope, leaves)

    def compare(ours: Tensor, expected: list[Tensor]) -> None:
        wanted = torch.cat([each.flatten() for each in expected])
        assert wanted.norm() > 0
        assert (ours.flatten() - wanted).norm() <= tolerance * wanted.norm()

    plain, tangent = (example.program(lanes, [3]) for lanes in (1, 2))
    for program, by_weight, by_strength in (
        (plain, first, to_strength),
        (tangent, second, to_strength_change),
    ):
        program.run(STEP)
        torch.testing.assert_close(program.loss[0], loss.detach())
        compare(program.weights.gradient, by_weight)
        compare(example.strength_gradient(program), [by_strength])


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.usefixtures("kernels")
def test_plain_attention_is_a_dense_softmax(rate: float) -> None:
    given = heavy()
    nodes, heads, channels, noise = given.num_rows, 3, 4, Noise(1, 2)
    strength, message = normal(90), normal(nodes, heads * channels)
    attention = normal(heads, channels, 2)
    by_head = message.view(nodes, heads, channels).transpose(0, 1)
    target, source = (by_head @ attention).unbind(-1)
    scores = leaky_relu(target.unsqueeze(-1) + source.unsqueeze(-2), 0.2)
    outside = given.dense(torch.ones(90)) == 0
    share = scores.masked_fill(outside, -torch.inf).softmax(-1).nan_to_num(0.0)
    if rate > 0:
        share = share * given.dense(keep_mask(normal(heads, 90), rate, noise, 5))
    expected = (share * given.dense(strength)) @ by_head
    out = attend(
        given.pattern,
        strength,
        message,
        attention,
        slope=0.2,
        rate=rate,
        noise=noise,
        site=5,
    )
    torch.testing.assert_close(out, expected.transpose(0, 1).reshape(nodes, -1))


@pytest.mark.parametrize(
    "positions", [heavy(), scattered()], ids=["heavy", "scattered"]
)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_program_on_awkward_graphs(positions: Positions, layers: int) -> None:
    check_against_autograd(Example(positions, layers=layers))


# Packs of channels that overlap, that hold one head and that hold several; packs of
# heads that are filled up, and two of them. Packs of four channels and of eight heads
# are compiled for other tests too.
@pytest.mark.parametrize(
    ("heads", "channels"), [(1, 1), (3, 5), (16, 8), (9, 4), (2, 40)]
)
def test_program_with_any_number_of_heads(heads: int, channels: int) -> None:
    check_against_autograd(Example(scattered(), heads, channels))


@pytest.mark.parametrize(
    "change",
    [{"per_layer": True}, {"rate": 0.0}, {"residual": True}],
    ids=["strengths per layer", "no dropout", "messages used twice"],
)
def test_program_of_other_networks(change: dict[str, object]) -> None:
    check_against_autograd(replace(Example(scattered()), **change))


def test_program_in_single_precision() -> None:
    example = Example(scattered(), 16, 8, dtype=torch.float32)
    check_against_autograd(example, tolerance=1e-5)


def everything(example: Example, program: Program) -> list[Tensor]:
    program.run(STEP)
    gradient = example.strength_gradient(program)
    return [program.loss, program.weights.gradient, gradient]


@pytest.mark.parametrize("lanes", [1, 2])
def test_replicas_equal_runs_alone(lanes: int) -> None:
    example = Example(scattered())
    together = everything(example, example.program(lanes, [3, 5]))
    for replica, seed in enumerate([3, 5]):
        alone = everything(example, example.program(lanes, [seed]))
        for ours, other in zip(together, alone, strict=True):
            assert torch.equal(ours[replica], other[0])
    assert not torch.equal(together[0][0], together[0][1])


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.usefixtures("restored_threads")
def test_parallel_equals_serial(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Also for dense products, which may round otherwise on one.
    torch.set_num_threads(2)
    example = Example(scattered())
    serial = everything(example, example.program(lanes, [3, 5]))
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", -1)
    parallel = everything(example, example.program(lanes, [3, 5]))
    for one, other in zip(serial, parallel, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("broken", ["attention0", "product1"])
def test_nothing_stays_of_a_run_that_diverged(broken: str) -> None:
    example = Example(scattered())
    program = example.program(2, [3])
    expected = [each.clone() for each in everything(example, program)]
    good = program.weights.value.clone()
    bad = example.weights()
    bad[broken].fill_(torch.nan)
    program.weights.value.copy_(flat(bad))
    program.run(STEP)
    assert program.loss.isnan().all()
    assert program.weights.gradient.isnan().any()
    program.weights.value.copy_(good)
    program.strengths.load(example.strengths.view(1, 1, -1))
    for ours, other in zip(everything(example, program), expected, strict=True):
        assert torch.equal(ours, other)


def test_averaged_heads_are_left_to_autograd() -> None:
    pattern = awkward().pattern
    model = GAT(FEATURES, 4, CLASSES, heads=2, output_heads=2)
    weights = dict(model.named_parameters())
    with pytest.raises(Untraceable):
        features = Symbol.of_features(FEATURES, weights)
        trace(model(features, pattern, Strengths(False), None), weights)
