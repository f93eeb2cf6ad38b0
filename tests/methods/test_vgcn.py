"""The bound that VGCN trains on, and the graphs that it draws."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.bilevel import Tree
from gsebo.methods.baselines.vgcn import VGCN, VGCNProblem
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.sparse import CompletePattern, Noise, uniform
from gsebo.training import Task

from .examples import quick, small_graph, with_fields

LOGITS = "logits"
PAIRS = 12 * 11 // 2


@pytest.fixture(scope="module")
def data() -> Data:
    data = small_graph(12)
    return with_fields(data, x=data.x.double())


def task_of(data: Data, dropout: float = 0.0) -> Task:
    prepared = PreparedGraph(data, torch.device("cpu"))
    network = NetworkChoices("gcn", 3, 2, dropout, None)
    return make_task(prepared, network, weight_decay=0.1, seed=4)


def problem_of(data: Data, dropout: float = 0.0, **options: Any) -> VGCNProblem:
    model = VGCN(**options)
    prior = model.prior_of(task_of(data))
    return VGCNProblem(task_of(data, dropout), model, *prior)


def moved(problem: VGCNProblem) -> tuple[Tree, Tree]:
    """Weights, and logits away from the prior, all with gradients."""
    weights = problem.initial_weights()
    logits = problem.initial_outer()[LOGITS]
    shift = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype)
    tree = {name: leaf.requires_grad_() for name, leaf in weights.items()}
    return tree, {LOGITS: (logits + shift).requires_grad_()}


def adjacency(strengths: Tensor) -> Tensor:
    return CompletePattern(12, "cpu").matrix(strengths)


# --- the loss ------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_is_the_bound_of_the_formula(data: Data, samples: int) -> None:
    prior_t, posterior_t, beta = 0.3, 0.7, 0.5
    problem = problem_of(
        data,
        samples=samples,
        prior_temperature=prior_t,
        posterior_temperature=posterior_t,
        beta=beta,
    )
    task = problem.task
    weights, outer = moved(problem)
    linked = torch.zeros(12, 12, dtype=torch.bool)
    linked[data.edge_index[0], data.edge_index[1]] = True
    lower = torch.ones(12, 12).tril(-1).bool()
    probability = torch.where(linked[lower], 0.99, 1e-5).double()
    q = LogitRelaxedBernoulli(torch.tensor(posterior_t), logits=outer[LOGITS])
    p = LogitRelaxedBernoulli(torch.tensor(prior_t), probs=probability)
    nodes, step = task.inner_nodes, 5
    terms = []
    for number in range(samples):
        noise = Noise(task.seed, step * samples + number)
        u = uniform((PAIRS,), noise, 1000, probability)
        b = (outer[LOGITS] + u.logit()) / posterior_t
        a = torch.eye(12, dtype=torch.float64)
        a[lower] = torch.sigmoid(b)
        a = a.tril() + a.tril(-1).T
        scale = a.sum(1).rsqrt().diag()
        logits = task.logits(
            weights, CompletePattern(12, "cpu"), (scale @ a @ scale).flatten(), None
        )
        likelihood = -cross_entropy(logits[nodes], task.labels[nodes], reduction="none")
        ratio = (q.log_prob(b) - p.log_prob(b)).sum()
        terms.append(likelihood - beta / len(nodes) * ratio)
    bound = torch.stack(terms).exp().mean(0).log().mean()
    first = [
        weight.square().sum()
        for name, weight in task.named_weights(weights).items()
        if name in ("layers.0.weight", "layers.0.bias")
    ]
    assert len(first) == 2
    expected = -bound + 0.1 / 2 * sum(first)
    torch.testing.assert_close(problem.loss(weights, outer, step), expected)


def test_without_divergence_and_one_sample_it_is_the_training_loss(data: Data) -> None:
    problem = problem_of(data, samples=1, beta=0.0)
    weights, outer = moved(problem)
    first = problem.loss(weights, outer, 1)
    problem = problem_of(data, samples=1, beta=100.0)
    # At the prior there is nothing to pay, however much it would cost.
    at_prior = problem.initial_outer()
    free = problem_of(data, samples=1, beta=0.0).loss(weights, at_prior, 1)
    assert torch.equal(problem.loss(weights, at_prior, 1), free)
    assert not torch.isclose(problem.loss(weights, outer, 1), first)


def test_gradients_are_those_of_finite_differences(data: Data) -> None:
    problem = problem_of(data, dropout=0.5, samples=2, posterior_temperature=0.9)
    weights, outer = moved(problem)
    (name,) = weights

    def loss(flat: Tensor, logits: Tensor) -> Tensor:
        return problem.loss({name: flat}, {LOGITS: logits}, 3)

    inputs = (weights[name], outer[LOGITS])
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def test_samples_and_steps_have_noise_of_their_own(data: Data) -> None:
    problem = problem_of(data, samples=2, posterior_temperature=1.0)
    weights, outer = moved(problem)
    losses = {float(problem.loss(weights, outer, step).detach()) for step in range(4)}
    assert len(losses) == 4
    assert float(problem.loss(weights, outer, 2).detach()) in losses


# --- the graphs ----------------------------------------------------------------------


def test_predictions_use_symmetric_graphs_between_zero_and_one(data: Data) -> None:
    problem = problem_of(data, posterior_temperature=1.0, edge_prior=0.5)
    weights, outer = moved(problem)
    members = problem.members(weights, outer)
    assert len(members) == 16
    matrices = [adjacency(member.propagation.strengths) for member in members]
    for strengths in matrices:
        torch.testing.assert_close(strengths, strengths.T)
        assert 0 <= float(strengths.min()) <= float(strengths.max()) <= 1
        assert not ((strengths > 0) & (strengths < 1e-6)).any()
        # Undo the normalisation: 1 / d_i is on the diagonal, because loops have 1.
        degree = 1 / strengths.diagonal()
        weights_of = strengths * (degree.outer(degree)).sqrt()
        off = weights_of - weights_of.diagonal().diag()
        torch.testing.assert_close(off.sum(1) + 1, degree, atol=1e-4, rtol=1e-4)
    assert not torch.equal(matrices[0], matrices[1])
    again = problem.members(weights, outer)
    assert torch.equal(adjacency(again[0].propagation.strengths), matrices[0])


def test_a_sure_prior_of_the_graph_is_the_vanilla_network(data: Data) -> None:
    problem = problem_of(data, edge_prior=1 - 1e-9, other_prior=1e-12, test_samples=3)
    weights, outer = problem.initial_weights(), problem.initial_outer()
    task = problem.task
    plain = task.logits(weights, task.graph.pattern, None, None)
    torch.testing.assert_close(
        problem.scores(weights, outer).exp(), plain.softmax(-1), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        problem.strengths(weights, outer), problem.initial_strengths
    )


# --- the prior -----------------------------------------------------------------------


def prior_edges(data: Data, **options: Any) -> Tensor:
    """Pairs that the prior expects to be joined, as a matrix."""
    pairs, prior = VGCN(**options).prior_of(task_of(data))
    return pairs.symmetric((prior.logits > -5).int())


def test_the_prior_has_the_published_probabilities(data: Data) -> None:
    for name, inside in (("graph", 0.99), ("knn", 0.5)):
        model = VGCN(prior=name, num_neighbors=3)
        _, prior = model.prior_of(task_of(data))
        expected = [math.log(p / (1 - p)) for p in (1e-5, inside)]
        assert prior.logits.unique().tolist() == pytest.approx(expected)
        assert prior.temperature == 0.1


def test_the_knn_prior_does_not_look_at_the_graph(data: Data) -> None:
    other = with_fields(data, edge_index=data.edge_index[:, :3])
    near = prior_edges(data, prior="knn", num_neighbors=3)
    assert torch.equal(near, prior_edges(other, prior="knn", num_neighbors=3))
    assert not torch.equal(prior_edges(data), prior_edges(other))
    assert (near.sum(1) >= 3).all()


def test_compat_keeps_the_neighbors_with_smaller_numbers(data: Data) -> None:
    options = {"prior": "knn", "num_neighbors": 3}
    both = prior_edges(data, **options)
    half = prior_edges(data, compat=True, **options)
    assert (half <= both).all()
    assert 0 < int(half.sum()) < int(both.sum())
    # The last node has its own neighbors, the first only those that named it.
    assert int(half[11].sum()) == 3


def test_compat_trains_on_half_of_the_validation_nodes() -> None:
    data = small_graph(40)
    plain, compat = (quick("vgcn", compat=flag).fit(data) for flag in (False, True))
    assert not torch.equal(plain.probability_, compat.probability_)
    y = data.y.clone()
    y[data.val_mask] = 1 - y[data.val_mask]
    other = quick("vgcn", compat=True).fit(with_fields(data, y=y))
    assert compat.history_[0].train_loss != other.history_[0].train_loss
    unchanged = quick("vgcn").fit(with_fields(data, y=y))
    assert plain.history_[0].train_loss == unchanged.history_[0].train_loss
    single = data.val_mask & (data.val_mask.cumsum(0) == 1)
    with pytest.raises(InvalidInput, match="validation node"):
        quick("vgcn", compat=True).fit(with_fields(data, val_mask=single))


def test_a_graph_that_is_too_large_is_refused_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = small_graph(30)
    monkeypatch.setattr("gsebo.methods.baselines.pairs.free_memory", lambda _: 10**5)
    with pytest.raises(InvalidInput, match="vgcn weighs all pairs"):
        quick("vgcn", samples=100).fit(data)
