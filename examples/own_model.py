"""Any PyG model gets edge strengths, unchanged; check its second order first."""

import torch
from torch.nn.functional import dropout, relu
from torch_geometric.nn import GATv2Conv, GCNConv

import gsebo


class MyModel(torch.nn.Module):
    """Two layers of different kinds; nothing in it knows about strengths."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        self.first = GATv2Conv(in_channels, hidden_channels, heads=2)
        self.second = GCNConv(2 * hidden_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Classify every node."""
        x = relu(self.first(x, edge_index))
        x = dropout(x, 0.5, training=self.training)
        return self.second(x, edge_index)


def main() -> None:
    data = gsebo.generate_graph(300, num_classes=3, homophily=0.6, seed=0)
    model = gsebo.GSEBO(MyModel, inner_steps=5, max_outer_steps=20, random_state=0)
    check = gsebo.check_hypergradient(model, data)
    print(f"hypergradient against finite differences: {check.relative_error:.0e}")
    check.raise_if_worse_than(1e-4)
    model.fit(data)
    print(f"test accuracy {model.score(data):.3f}")


if __name__ == "__main__":
    main()
