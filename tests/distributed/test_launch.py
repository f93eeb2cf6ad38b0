import sys

import pytest

from gsebo import InvalidInput
from gsebo.distributed import Alone, current_group, launched, quiet_other_ranks

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
NAMES += ("LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
    "TORCHELASTIC_RUN_ID": "x",
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def pretend(monkeypatch: pytest.MonkeyPatch, **environment: str | None) -> None:
    for name, value in environment.items():
        if value is not None:
            monkeypatch.setenv(name, value)


def test_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched() is None
    assert isinstance(current_group(), Alone)
    pretend(monkeypatch, WORLD_SIZE="1", RANK="0")
    assert launched() is None


def test_place_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, **TORCHRUN)
    assert launched() == (1, 4, 0, 2)


def test_a_single_process_of_torchrun_is_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, **(TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}))
    found = launched()
    assert found is not None
    assert found.size == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"RANK": None}, "has TORCHELASTIC_RUN_ID but not RANK; expected all"),
        ({"MASTER_PORT": None}, "but not MASTER_PORT; expected all"),
        ({"RANK": None, "TORCHELASTIC_RUN_ID": None}, "has WORLD_SIZE=4 but not RANK"),
        ({"RANK": "4"}, "RANK=4 and WORLD_SIZE=4 given; expected a rank from 0 to 3"),
        ({"RANK": "-1"}, "RANK='-1' in the environment; expected an integer"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE='four' in the environment"),
    ],
)
def test_half_an_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], sentence: str
) -> None:
    pretend(monkeypatch, **(TORCHRUN | changes))
    with pytest.raises(InvalidInput, match=sentence):
        launched()


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, **(TORCHRUN | {"LOCAL_WORLD_SIZE": "1000"}))
    with pytest.raises(InvalidInput, match="1000 processes on a machine with"):
        current_group("cuda")


@pytest.mark.parametrize(("rank", "printed"), [("0", "result\n"), ("1", "")])
def test_only_the_first_prints(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    printed: str,
) -> None:
    pretend(monkeypatch, **(TORCHRUN | {"RANK": rank}))
    with quiet_other_ranks() as is_first:
        assert is_first == (rank == "0")
        print("result")
        print("error", file=sys.stderr)
    assert capsys.readouterr() == (printed, "error\n")
    print("later")
    assert capsys.readouterr().out == "later\n"


def test_alone_everything_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet_other_ranks() as is_first:
        assert is_first
        print("result")
    assert capsys.readouterr().out == "result\n"
