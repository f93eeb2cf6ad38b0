"""Can noise be told from a graph? DenNE on planted graphs, beside itself without noise.

``python examples/denne.py 10`` takes ten graphs in place of two.
"""

import sys
from collections.abc import Iterator

import numpy as np
from sklearn.metrics import roc_auc_score

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


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    names = "area under ROC", "wrong edges, of 1 before", "accuracy", "without noise"
    for kind in ("inter_class", "random"):
        rows = [[*figures(FIRST_SEED + seed, kind)] for seed in range(seeds)]
        for name, found in zip(names, np.array(rows).T, strict=True):
            print(f"{kind:12} {name:26} {found.mean():.3f} ± {found.std():.3f}")


if __name__ == "__main__":
    main()
