"""What holds on every processor; ``make portable`` asks for more of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scripts.portable import Processor, checksums, environment, processors
from typer.testing import CliRunner

import gsebo
from gsebo import InvalidInput, code_paths
from gsebo.cli.main import app
from portable_fits import expected

needs_avx2 = pytest.mark.skipif(
    code_paths.instructions() not in ("avx2", "avx512"), reason="a processor with AVX2"
)
late = pytest.mark.skipif(
    os.environ.get("GSEBO_REPRODUCIBLE") == "1", reason="asked for in time"
)
# What a user may have set for another purpose, and what hides AVX-512 from the
# C library.
CONTRARY = {**processors()["AVX2"].variables, "NUMBA_CPU_NAME": "nehalem"}
CLEAN = Processor({})


@needs_avx2
def test_bits_are_the_same_on_other_processors(tmp_path: Path) -> None:
    here, pinned = checksums(environment(CLEAN, 1, tmp_path))
    other = Processor(CONTRARY, processors()["of the other maker"].intel)
    elsewhere = environment(other, 2, tmp_path)
    there, _ = checksums(elsewhere, "--torch-first", "--threads", "2")
    assert here == there
    # With other versions of the libraries they are others, but the same everywhere.
    assert here == (pinned or here)
    assert (expected() is None) == (pinned is None)


def said(folder: Path, script: str, **variables: str) -> str:
    """What a script prints that begins with nothing imported."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**environment(CLEAN, 1, folder), **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_avx2
def test_what_the_user_has_set_is_left_alone(tmp_path: Path) -> None:
    script = """
import torch, gsebo
state = gsebo.reproducibility()
print(state["mkl"], state["aten"], state["numba"], state["waiting"])
"""
    own = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"}
    own |= {"NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": "+sse4.2"}
    own |= {"OMP_WAIT_POLICY": "ACTIVE"}
    assert said(tmp_path, script, **own) == "compatible default nehalem active"


@needs_avx2
def test_it_can_be_too_late(tmp_path: Path) -> None:
    script = """
import os
os.environ.pop("OMP_WAIT_POLICY", None)
import torch
torch.ones(9, 9) @ torch.ones(9, 9)
import gsebo
state = gsebo.reproducibility()
print(state["reproducible"], state["waiting"], state["mkl"], end=" ")
try:
    gsebo.set_reproducible()
except gsebo.InvalidInput as error:
    print(error, "GSEBO_REPRODUCIBLE" in os.environ, os.environ["MKL_CBWR"])
"""
    found = said(tmp_path, script)
    assert found.startswith("False default default reproducible mode asked for after ")
    assert found.endswith("before anything is computed. False AUTO")


@late
def test_the_command_says_that_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSEBO_REPRODUCIBLE", "0")
    torch.ones(9, 9) @ torch.ones(9, 9)
    result = CliRunner().invoke(app, ["--reproducible", "--version"])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: reproducible mode asked for after MKL")
    assert os.environ["GSEBO_REPRODUCIBLE"] == "0"


def test_only_two_values_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSEBO_REPRODUCIBLE", "yes\x1b")
    with pytest.raises(InvalidInput, match=r"='yes\\\\x1b' given; expected 0 or 1\.$"):
        gsebo.Vanilla().fit(gsebo.generate_graph(20, seed=0))


def test_a_processor_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_paths, "_flags", lambda: frozenset({"sse4_2"}))
    # The libraries of this process stay as they are.
    monkeypatch.setattr(code_paths, "_tell_loaded_libraries", lambda: None)
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)
    code_paths.fix_code_paths()
    assert "NUMBA_CPU_NAME" not in os.environ
    assert "ATEN_CPU_CAPABILITY" not in os.environ
    monkeypatch.setenv("GSEBO_REPRODUCIBLE", "1")
    with pytest.raises(InvalidInput, match="expected an x86-64 processor with AVX2"):
        gsebo.Vanilla().fit(gsebo.generate_graph(20, seed=0))


@needs_avx2
def test_kernels_in_files_are_told_apart_by_what_they_are_for() -> None:
    from numba.core import registry

    _, name, features = registry.cpu_target.target_context.codegen().magic_tuple()
    assert name == os.environ["NUMBA_CPU_NAME"]
    assert features == os.environ["NUMBA_CPU_FEATURES"]
