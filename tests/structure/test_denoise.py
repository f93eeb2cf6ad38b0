import pytest
import torch
from torch import Tensor
from torch.nn.functional import relu

from gsebo.graph import Topology
from gsebo.methods.baselines.ptdnet import EdgeNetwork, EdgeNetworks
from gsebo.sparse import make_features

from .graphs import EDGES, NUM_NODES, graph

pairs = pytest.mark.parametrize("pair_channels", [None, 5])


def topology(self_loops: bool = True) -> Topology:
    where = graph(EDGES["directed"], NUM_NODES)
    return Topology.of(where, self_loops=self_loops, device="cpu")


def network(pair_channels: int | None) -> EdgeNetwork:
    torch.manual_seed(0)
    made = EdgeNetwork(4, 3, pair_channels).double()
    for parameter in made.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return made


def features() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(NUM_NODES, 4, generator=generator, dtype=torch.float64)
    return drawn * (drawn > 1)


@pairs
@pytest.mark.parametrize("self_loops", [True, False])
def test_each_logit_sees_the_two_ends_of_its_edge(
    pair_channels: int | None, self_loops: bool
) -> None:
    net, h, where = network(pair_channels), features(), topology(self_loops)
    expected = []
    for source, target in where.graph.edge_index.T.tolist():
        p = relu(h[source] @ net.source_weight + net.source_bias)
        q = relu(h[target] @ net.target_weight + net.target_bias)
        joint = torch.cat([p, q]) @ net.joint_weight + net.joint_bias
        if pair_channels:
            joint = relu(joint) @ net.out_weight + net.out_bias
        expected.append(joint)
    found = net(h, where)
    assert found.shape == (where.num_edges,)
    assert torch.allclose(found, torch.cat(expected))
    sparse = make_features(h, torch.float64, "cpu")
    assert not isinstance(sparse, Tensor)
    assert torch.allclose(net(sparse, where), found)


@pairs
def test_its_derivative_is_that_of_finite_differences(
    pair_channels: int | None,
) -> None:
    net, h, where = network(pair_channels), features() + 0.3, topology()
    names = dict(net.named_parameters())

    def logits(h: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(net, named, (h, where))

    parameters = [p.detach().requires_grad_() for p in names.values()]
    assert torch.autograd.gradcheck(logits, (h.requires_grad_(), *parameters))


def test_there_is_one_network_for_each_layer() -> None:
    nets = EdgeNetworks([4, 6], channels=3, pair_channels=None).double()
    where = topology()
    assert torch.equal(nets(0, features(), where), nets.layers[0](features(), where))
    wide = torch.cat([features(), features()[:, :2]], dim=1)
    assert torch.equal(nets(1, wide, where), nets.layers[1](wide, where))


def test_a_graph_without_edges_has_no_logits() -> None:
    bare = Topology.of(graph([[], []], 3), self_loops=True, device="cpu")
    for pair_channels in (None, 2):
        assert EdgeNetwork(4, 3, pair_channels)(torch.ones(3, 4), bare).shape == (0,)
