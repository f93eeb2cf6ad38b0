"""Learned edge weights inside your own PyG model: clean the graph first, then train."""

import torch
from torch.nn.functional import cross_entropy, dropout, relu
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import gsebo


class MyGCN(torch.nn.Module):
    """Two layers that take ``edge_weight``, as most of PyG's do."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        self.first = GCNConv(in_channels, hidden_channels)
        self.second = GCNConv(hidden_channels, out_channels)

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor
    ) -> torch.Tensor:
        """Classify every node."""
        x = relu(self.first(x, edge_index, edge_weight))
        x = dropout(x, 0.5, training=self.training)
        return self.second(x, edge_index, edge_weight)


def train(data: Data, *, epochs: int = 100, seed: int = 0) -> float:
    """Train on the labels that the learned weights have seen; return test accuracy."""
    torch.manual_seed(seed)
    model = MyGCN(data.num_features, 16, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    known = data.train_mask | data.val_mask
    edges = data.edge_index, data.edge_weight
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(model(data.x, *edges)[known], data.y[known]).backward()
        optimizer.step()
    model.eval()
    right = model(data.x, *edges).argmax(-1) == data.y
    return float(right[data.test_mask].double().mean())


def main() -> None:
    # Cora with as many false edges again as it has true ones.
    data = gsebo.apply_noise(gsebo.load_data("cora"), 5000, seed=0)
    fitted = gsebo.Amortised("gcn", max_outer_steps=40, random_state=0).fit(data)
    print(f"gsebo.Amortised            {fitted.score(data):.3f}")

    cleaned = fitted.clean_graph()
    print(f"my GCN, learned weights    {train(cleaned):.3f}")

    cleaned.edge_weight = torch.ones_like(cleaned.edge_weight)
    print(f"my GCN, the graph as it is {train(cleaned):.3f}")


if __name__ == "__main__":
    main()
