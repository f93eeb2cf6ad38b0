import numba
import numpy as np
import pytest

from gsebo.sparse.numba_pack import exponential, packs_of, store


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_is_below_the_last_digit(count: int, dtype: type) -> None:
    load = packs_of(count).load

    @numba.njit
    def fill(x, out):
        for start in range(0, x.size, count):
            store(out, start, exponential(load(x, start)))

    x = -np.geomspace(1e-9, 700, 4000).astype(dtype)
    x[:4] = 0, -np.inf, np.nan, -1e30
    out = np.empty_like(x)
    fill(x, out)
    exact = np.exp(x.astype(np.longdouble))
    normal_numbers = exact >= 4 * np.finfo(dtype).tiny
    error = np.abs(out - exact)[normal_numbers] / exact[normal_numbers]
    assert error.max() <= np.finfo(dtype).eps
    assert out[0] == 1
    assert np.isnan(out[2])
    assert (out[exact < np.finfo(dtype).tiny] == 0).all()
