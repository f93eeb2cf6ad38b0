"""Where the CPU kernels should change their ways: the ratios behind two constants.

``python benchmarks/thresholds.py`` prints, each within one run, how much slower the
dense product of features is than the sparse one by the share of stored numbers, and how
much slower one thread is than two by the work of a sparse product.
"""

import time
from collections.abc import Callable

import torch

from gsebo.sparse import Pattern, SparseFeatures, numba_compile
from gsebo.sparse.numba_cpu import NUMBA_KERNELS


def ratio(first: Callable[[], object], second: Callable[[], object]) -> float:
    """Best time of ``first`` over best time of ``second``, taken in turns."""
    first(), second()
    best = [float("inf"), float("inf")]
    for _ in range(9):
        for number, call in enumerate((first, second)):
            begun = time.perf_counter()
            for _ in range(5):
                call()
            best[number] = min(best[number], time.perf_counter() - begun)
    return best[0] / best[1]


def sparse_features(share: float, channels: int) -> float:
    """Dense over sparse time of ``X @ W`` for features of Cora's size."""
    torch.set_num_threads(1)
    x = torch.rand(2708, 1433) * (torch.rand(2708, 1433) < share)
    rows, columns = x.nonzero(as_tuple=True)
    pattern = Pattern.from_positions(rows, columns, *x.shape)
    features = SparseFeatures(pattern, x[rows, columns])
    weight = torch.randn(1433, channels)
    return ratio(lambda: x @ weight, lambda: features @ weight)


def two_threads(nodes: int, degree: int, channels: int) -> float:
    """Time of a sparse product on one thread over its time on two."""
    torch.set_num_threads(2)
    ends = torch.randint(nodes, (2, nodes * degree))
    pattern = Pattern.from_positions(*ends, nodes)
    values, x = torch.rand(1, nodes * degree), torch.randn(1, nodes, channels)

    def product(parallel_above: int) -> None:
        numba_compile._PARALLEL_WORK = parallel_above
        NUMBA_KERNELS.spmm(pattern, values, x)

    return ratio(lambda: product(2**62), lambda: product(-1))


def main() -> None:
    """Print both tables."""
    torch.manual_seed(0)
    print("stored share | dense / sparse, 16 channels | 128 channels")
    for share in (0.02, 0.05, 0.1, 0.25, 0.4):
        figures = [sparse_features(share, channels) for channels in (16, 128)]
        print(f"{share} | {figures[0]:.2f} | {figures[1]:.2f}")
    print("multiplications | one thread / two")
    for nodes, degree, channels in (
        (2708, 5, 16),
        (5000, 6, 16),
        (10_000, 6, 16),
        (20_000, 8, 16),
        (20_000, 8, 32),
        (50_000, 8, 32),
    ):
        figure = two_threads(nodes, degree, channels)
        print(f"{nodes * degree * channels} | {figure:.2f}")


if __name__ == "__main__":
    main()
