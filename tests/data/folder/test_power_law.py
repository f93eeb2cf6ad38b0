"""Graphs that are drawn straight into a folder are what was asked for."""

from pathlib import Path

import numpy as np
import pytest

from data.folder.tables import names_in
from gsebo.data import validate
from gsebo.data.synthetic.power_law import write_power_law
from gsebo.errors import InvalidInput


def test_it_is_what_was_asked_for(tmp_path: Path) -> None:
    folder = write_power_law(tmp_path / "g", 20_000, 200_000, labelled_share=0.1)
    folder.verify()
    arrays = folder.arrays()
    assert arrays.num_edges == pytest.approx(200_000, rel=0.02)
    assert (arrays.num_features, folder.manifest.num_classes) == (32, 10)
    degree = np.diff(arrays.indptr)
    target = np.repeat(np.arange(20_000), degree)
    y = np.asarray(arrays.y)
    assert np.mean(y[arrays.source] == y[target]) == pytest.approx(0.8, abs=0.02)
    # Of a power law with the exponent 2.5, the estimate of Hill is near that.
    for counts in (degree, np.bincount(arrays.source, minlength=20_000)):
        assert counts.max() > 10 * counts.mean()
    tail = np.sort(degree)[::-1][:1000]
    assert 1 + 1 / np.mean(np.log(tail / tail[-1])) == pytest.approx(2.5, abs=0.4)
    shares = [mask.mean() for mask in (arrays.train, arrays.val, arrays.test)]
    assert shares == pytest.approx([0.05, 0.05, 0.1], rel=0.2)
    validate(folder.to_data())


def test_features_tell_the_class(tmp_path: Path) -> None:
    arrays = write_power_law(tmp_path / "g", 2000, 9000, dtype="float16").arrays()
    assert arrays.x.dtype == np.float16
    x, y = np.asarray(arrays.x, np.float32), np.asarray(arrays.y)
    means = np.stack([x[y == each].mean(0) for each in range(10)])
    nearest = ((x[:, None] - means) ** 2).sum(-1).argmin(1)
    assert np.mean(nearest == y) > 0.9


def test_the_seed_says_everything(tmp_path: Path) -> None:
    graphs = []
    for number, seed in enumerate((1, 1, 2)):
        folder = write_power_law(
            tmp_path / str(number), 500, 2000, labelled_share=0.3, seed=seed
        )
        graphs.append(folder.manifest.arrays)
    assert graphs[0] == graphs[1]
    for name in ("source", "indptr", "x", "train_mask"):
        assert graphs[0][name].sha256 != graphs[2][name].sha256


@pytest.mark.parametrize("homophily", [0.0, 1.0])
def test_the_ends_of_homophily(homophily: float, tmp_path: Path) -> None:
    arrays = write_power_law(
        tmp_path / "g", 400, 1200, num_classes=3, homophily=homophily
    ).arrays()
    target = np.repeat(np.arange(400), np.diff(arrays.indptr))
    y = np.asarray(arrays.y)
    assert np.mean(y[arrays.source] == y[target]) == homophily


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_nodes": 39}, "num_nodes=39"),
        ({"num_edges": 10**6}, "num_edges=1000000"),
        ({"num_classes": 1}, "num_classes=1"),
        ({"num_features": 0}, "num_features=0"),
        ({"homophily": 1.5}, "homophily=1.5"),
        ({"labelled_share": 0.0}, "labelled_share=0.0"),
        ({"feature_signal": -1.0}, "feature_signal=-1.0"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_what_cannot_be_drawn(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=said):
        write_power_law(
            tmp_path / "g", **{"num_nodes": 100, "num_edges": 500, **changes}
        )
    assert names_in(tmp_path) == []
