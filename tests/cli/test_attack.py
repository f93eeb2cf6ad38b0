"""``gsebo attack``: a graph goes in, and one on which a network fails comes out."""

from pathlib import Path

import pytest
import torch

from attacks.graphs import edge_set, small_graph
from cli.conftest import Command, json_of, refused
from gsebo import Vanilla, load_data
from gsebo.attacks.registry import ATTACKS
from gsebo.data import save_npz

QUICK = ("--set", "epochs=15", "--set", "block_size=2000", "--device", "cpu")
OUT = ("--out", "attacked.npz")


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    save_npz(small_graph(), path)
    return path


def test_an_attacked_graph_is_written(command: Command, graph_file: Path) -> None:
    done = command("attack", graph_file, "--budget", "20%", *QUICK, *OUT)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines() == ["The attacked graph is in attacked.npz."]
    assert "pairs added" in done.stdout and "between classes" in done.stdout
    assert "accuracy of vanilla" in done.stdout
    before, after = small_graph(), load_data("attacked.npz")
    assert 0 < len(edge_set(before) ^ edge_set(after)) <= 0.2 * before.num_edges + 2
    assert torch.equal(after.y, before.y)
    assert torch.equal(after.test_mask, before.test_mask)
    assert after.meta["attack"]["kind"] == "prbcd"
    assert after.meta["attack"]["budget"] == "20%"
    # What was written is a graph like any other.
    assert command("fit", "attacked.npz", "--method", "vanilla").exit_code == 0


def test_what_json_tells_is_so(command: Command, graph_file: Path) -> None:
    told = json_of(
        command("attack", graph_file, *QUICK, "--budget", 30, "--json", *OUT)
    )
    assert told["added"] + told["removed"] <= 30
    assert told["attacked_nodes"] == int(small_graph().test_mask.sum())
    model = Vanilla(random_state=0, device="cpu").fit(small_graph())
    assert told["accuracy_before"] == pytest.approx(model.score(small_graph()))
    attacked = load_data("attacked.npz")
    assert told["accuracy_after"] == pytest.approx(model.score(attacked))
    assert told["accuracy_after"] < told["accuracy_before"]
    again = json_of(
        command(
            "attack", graph_file, *QUICK, "--budget", 30, "--json", "--out", "b.npz"
        )
    )
    assert edge_set(load_data("b.npz")) == edge_set(attacked)
    assert again["accuracy_after"] == told["accuracy_after"]


@pytest.mark.parametrize("kind", ["random", "DICE", "nettack", "grbcd"])
def test_other_kinds(command: Command, graph_file: Path, kind: str) -> None:
    quick = QUICK if kind == "grbcd" else ()
    found = json_of(
        command(
            "attack", graph_file, "--kind", kind, "--budget", 2, *quick, "--json", *OUT
        )
    )
    assert found["kind"] == kind.lower()
    assert found["per_node"] == (kind == "nettack")
    assert found["added"] + found["removed"] > 0


def test_each_node_on_its_own(command: Command, graph_file: Path) -> None:
    found = json_of(
        command(
            *("attack", graph_file, *QUICK, "--per-node", "--budget", "100%"),
            *("--targets", "val", "--knows-labels", "--json", *OUT),
        )
    )
    assert found["attacked_nodes"] == int(small_graph().val_mask.sum())
    assert found["accuracy_after"] < found["accuracy_before"] - 0.3


def test_a_saved_model_is_the_victim(command: Command, graph_file: Path) -> None:
    fit = command("fit", graph_file, "--method", "vanilla", "--out", "model")
    assert fit.exit_code == 0
    found = json_of(
        command("attack", graph_file, *QUICK, "--model", "model", "--json", *OUT)
    )
    assert found["victim"] == "model"
    assert found["accuracy_after"] < found["accuracy_before"]


def test_random_edges_need_neither_labels_nor_masks(
    command: Command, tmp_path: Path
) -> None:
    bare = small_graph().clone()
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        del bare[name]
    save_npz(bare, tmp_path / "bare.npz")
    words = ("attack", tmp_path / "bare.npz", "--budget", 5, *OUT)
    found = json_of(command(*words, "--kind", "random", "--json"))
    assert found["added"] == 5 and found["accuracy_before"] is None
    assert found["victim"] is None and found["added_between_classes"] is None
    assert "y" in refused(command(*words, "--kind", "dice", "--force"))


def test_masks_are_drawn_where_there_are_none(command: Command, tmp_path: Path) -> None:
    bare = small_graph().clone()
    for name in ("train_mask", "val_mask", "test_mask"):
        del bare[name]
    save_npz(bare, tmp_path / "bare.npz")
    done = command("attack", tmp_path / "bare.npz", "--kind", "dice", *OUT)
    assert done.exit_code == 0, done.stderr
    assert "random:10/20/70, by the seed" in done.stderr
    assert int(load_data("attacked.npz").train_mask.sum()) == 12


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--kind", "prbdc"), "unknown attack 'prbdc', did you mean 'prbcd'?"),
        (("--budget", "5x"), "budget='5x' given; expected a number of pairs"),
        (("--targets", "best"), "--targets best given; expected one of: test"),
        (("--method", "nothing"), "unknown method 'nothing'"),
        (("--method", "vanilla", "--model", "m"), "expected one of both"),
        (("--model", "nowhere"), "nowhere"),
        (("--set", "epoch=3"), "unknown parameter 'epoch', did you mean 'epochs'?"),
        (("--set", "epochs=0"), "epochs=0 given; expected an integer >= 1"),
        (("--out", "graph.csv"), "expected a file that ends in .npz"),
        (("--out", "taken.npz"), "taken.npz is there already"),
        (("--out", "taken.npz/a.npz"), "cannot write"),
    ],
)
def test_refusals(
    command: Command, graph_file: Path, words: tuple[str, ...], expected: str
) -> None:
    Path("taken.npz").write_text("mine")
    place = () if "--out" in words else OUT
    assert expected in refused(command("attack", graph_file, *place, *words))
    assert Path("taken.npz").read_text() == "mine"
    assert not Path("attacked.npz").exists()


def test_what_is_there_is_replaced_when_asked(
    command: Command, graph_file: Path
) -> None:
    Path("attacked.npz").write_text("mine")
    words = ("attack", graph_file, "--kind", "random", *OUT)
    assert "is there already" in refused(command(*words))
    assert command(*words, "--force").exit_code == 0
    assert load_data("attacked.npz").num_nodes == small_graph().num_nodes


def test_attacks_are_listed(command: Command) -> None:
    listed = json_of(command("list", "attacks", "--json"))["attacks"]
    assert [row["name"] for row in listed] == list(ATTACKS)
    assert all(len(row["description"]) > 20 for row in listed)
