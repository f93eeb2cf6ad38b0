"""MAGNA is trained as published: Adam, a cosine, clipped gradients."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from gsebo import InvalidInput
from gsebo.methods.baselines.magna import MAGNA, MAGNANet, cosine
from gsebo.methods.fitting import PreparedGraph
from gsebo.sparse import Noise

from .examples import small_graph

OPTIONS = {"heads": 2, "hops": 3, "top_k": 3}
STEPS, SEED, DECAY, CLIP = 15, 4, 0.01, 0.5


@pytest.mark.parametrize("final_lr", [1e-8, 0.05])
def test_training_equals_a_loop_in_torch(final_lr: float) -> None:
    data = small_graph()
    data.x = data.x.double()
    fitted = MAGNA(
        hidden_channels=8,
        inner_lr=0.01,
        final_lr=final_lr,
        weight_decay=DECAY,
        max_norm=CLIP,
        max_epochs=STEPS,
        select_by="last",
        backbone_options=OPTIONS,
        random_state=SEED,
        device="cpu",
    ).fit(data)

    prepared = PreparedGraph(data, torch.device("cpu"))
    pattern = prepared.topology(self_loops=True).pattern
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = MAGNANet(8, 8, int(data.y.max()) + 1, **OPTIONS).double()
    weights = list(network.parameters())
    optimizer = torch.optim.Adam(weights, lr=0.01)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, final_lr)
    norms = []
    for step in range(STEPS):
        logits = network(prepared.features, pattern, noise=Noise(SEED, step))
        loss = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        loss = loss + DECAY / 2 * sum(weight.square().sum() for weight in weights)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(clip_grad_norm_(weights, CLIP)))
        optimizer.step()
        falling.step()
    assert max(norms) > CLIP
    with torch.no_grad():
        expected = network(prepared.features, pattern).softmax(-1)
    torch.testing.assert_close(fitted.probability_, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(fitted.strength_, torch.ones(data.edge_index.shape[1]).double())


def test_defaults_are_the_published_ones() -> None:
    model = MAGNA()
    assert (model.num_layers, model.hidden_channels, model.dropout) == (2, 512, 0.25)
    assert (model.inner_lr, model.final_lr, model.weight_decay) == (2e-4, 1e-8, 1e-5)
    assert (model.max_epochs, model.patience, model.max_norm) == (600, 300, 1.0)
    assert model.select_by == "accuracy"


def test_the_learning_rate_of_every_step() -> None:
    factor = cosine(2e-4, 1e-8, 600)
    rates = [2e-4 * factor(count) for count in range(601)]
    assert rates[0] == pytest.approx(2e-4)
    assert rates[300] == pytest.approx((2e-4 + 1e-8) / 2)
    assert rates[600] == pytest.approx(1e-8)
    assert rates == sorted(rates, reverse=True)
    assert cosine(0.0, 1e-8, 600)(5) == 1


@pytest.mark.parametrize("backbone", ["gcn", "pyg:GCN", MAGNANet])
def test_other_networks_are_refused(backbone: object) -> None:
    with pytest.raises(InvalidInput, match="MAGNA expected 'magna'"):
        MAGNA(backbone).fit(small_graph(20))


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(InvalidInput, match="hidden_channels=12 given with heads=8"):
        MAGNA(hidden_channels=12).fit(small_graph(20))
