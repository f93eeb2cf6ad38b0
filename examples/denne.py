"""Can noise be told from a graph? DenNE on planted graphs, beside itself without noise.

And on Cora with false edges, where its communities are hardly there, beside the cosine
of the features. ``python examples/denne.py 10`` takes ten seeds in place of two.
"""

import sys
from collections.abc import Iterator

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize

import gsebo

NODES, FALSE_SHARE, FIRST_SEED = 800, 0.3, 100


def noisy_graph(seed: int, kind: str) -> tuple[gsebo.Graph, np.ndarray]:
    """Four communities and power-law degrees; which edges were added behind."""
    clean = gsebo.generate_graph(
        NODES, num_classes=4, homophily=0.95, split="random:10/20/70", seed=seed
    )
    pairs = clean.num_edges // 2
    count = round(pairs * FALSE_SHARE / (1 - FALSE_SHARE))
    noisy = gsebo.apply_noise(clean, f"{kind}:{count}", seed)
    return noisy, np.arange(noisy.num_edges) >= clean.num_edges


def figures(seed: int, kind: str) -> Iterator[float]:
    """How well noise is found, and how well representations classify."""
    graph, false = noisy_graph(seed, kind)
    options = {"classifier": "logistic", "random_state": seed}
    model = gsebo.DenNE(**options).fit(graph)
    control = gsebo.DenNE(**options, denoise=False).fit(graph)
    yield roc_auc_score(false, model.noise_)
    removed = model.noise_.numpy() > model.threshold
    yield float((removed != false).sum() / false.sum())
    yield model.score(graph)
    yield control.score(graph)


def figures_of_cora(seed: int, noise: str) -> Iterator[float]:
    """How well noise is found, by the cosine as well, and what the GCN gains by it."""
    clean = gsebo.load_data("cora")
    graph = gsebo.apply_noise(clean, noise, seed)
    false = np.arange(graph.num_edges) >= clean.num_edges
    model = gsebo.DenNE(random_state=seed).fit(graph)
    yield roc_auc_score(false, model.noise_)
    ends = normalize(graph.x)[graph.edge_index.numpy()]
    yield roc_auc_score(false, -(ends[0] * ends[1]).sum(-1))
    yield model.score(graph)
    yield gsebo.Vanilla(random_state=seed).fit(graph).score(graph)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    names = "area under ROC", "wrong edges, of 1 before", "accuracy", "without noise"
    for kind in ("inter_class", "random"):
        found = [[*figures(FIRST_SEED + seed, kind)] for seed in range(seeds)]
        show(f"planted, {kind}", names, found)
    names = "area under ROC", "by the cosine", "accuracy of GCN", "of the plain GCN"
    for noise in ("inter_class:1000", "inter_class:5000"):
        found = [[*figures_of_cora(seed, noise)] for seed in range(seeds)]
        show(f"Cora, {noise}", names, found)


def show(title: str, names: tuple[str, ...], rows: list[list[float]]) -> None:
    for name, found in zip(names, np.array(rows).T, strict=True):
        print(f"{title:24} {name:26} {found.mean():.3f} ± {found.std():.3f}")


if __name__ == "__main__":
    main()
