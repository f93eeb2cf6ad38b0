"""Edges with weights: what they are worth where wrong edges tend to weigh less."""

import argparse

import torch

import gsebo

METHODS = {
    "vanilla": lambda seed: gsebo.Vanilla(random_state=seed),
    "GSEBO": lambda seed: gsebo.GSEBO(max_outer_steps=30, random_state=seed),
    "amortised": lambda seed: gsebo.Amortised(
        max_outer_steps=40, refit_epochs=150, random_state=seed
    ),
}


def doubtful_graph(seed: int, num_nodes: int = 300) -> gsebo.Graph:
    """A planted graph with false edges, whose weights are lower, but overlap."""
    clean = gsebo.generate_graph(
        num_nodes,
        num_classes=3,
        num_features=16,
        average_degree=6.0,
        homophily=0.95,
        feature_signal=0.3,
        split="random:10/20/70",
        seed=seed,
    )
    graph = gsebo.add_inter_class_edges(clean, 4 * num_nodes // 3, seed)
    ends, wrong = graph.edge_index, is_wrong(graph.edge_index, graph.y)
    # Both directions of an edge weigh the same.
    pair = ends.amin(0) * num_nodes + ends.amax(0)
    number = torch.unique(pair, return_inverse=True)[1]
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(int(number.max()) + 1, generator=generator)[number]
    graph.edge_weight = torch.exp(0.7 * spread - wrong.float())
    return graph


def without_weights(graph: gsebo.Graph) -> gsebo.Graph:
    """The same graph; all its edges count alike."""
    bare = graph.clone()
    del bare["edge_weight"]
    return bare


def is_wrong(edge_index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Which edges join nodes of two classes."""
    return y[edge_index[0]] != y[edge_index[1]]


def ranking(model: gsebo.Amortised, y: torch.Tensor) -> float:
    """How often a right edge outweighs a wrong one, by what was learned and given."""
    graph, weight = model.model_.graph, model.model_.scorer.weights
    if graph.weight is not None:
        weight = weight * graph.weight
    wrong = is_wrong(graph.edge_index, y)
    return area_under_curve(weight[~wrong], weight[wrong])


def area_under_curve(right: torch.Tensor, wrong: torch.Tensor) -> float:
    """Share of the pairs of both kinds in which the right one is larger."""
    larger = right[:, None] > wrong[None, :]
    return float((larger + 0.5 * (right[:, None] == wrong[None, :])).mean())


def measured(seed: int) -> dict[str, tuple[float, float]]:
    """Test accuracy, and how well edges are ranked, without weights and with them."""
    graph = doubtful_graph(seed)
    both = without_weights(graph), graph
    found = {}
    for name, make in METHODS.items():
        models = [make(seed).fit(given) for given in both]
        scores = [model.score(given) for model, given in zip(models, both, strict=True)]
        found[f"accuracy of {name}"] = scores[0], scores[1]
    found["ranking by amortised"] = (
        ranking(models[0], graph.y),
        ranking(models[1], graph.y),
    )
    wrong, weight = is_wrong(graph.edge_index, graph.y), graph.edge_weight
    alone = area_under_curve(weight[~wrong], weight[wrong])
    found["ranking by the weights alone"] = 0.5, alone
    return found


def main(seeds: int = 1) -> None:
    runs = [measured(seed) for seed in range(seeds)]
    print("| | without weights | with weights |\n|---|---|---|")
    for name in runs[0]:
        without, given = 100 * torch.tensor([run[name] for run in runs]).mean(0)
        print(f"| {name} | {without:.1f} | {given:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    # Whoever runs all examples has arguments of their own.
    main(parser.parse_known_args()[0].seeds)
