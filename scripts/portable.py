"""Run what must hold to the last bit as other processors would compute it.

The libraries below take their code from variables, and MKL also by who made the
processor: a small shared library that says otherwise makes an AMD processor run MKL's
code for Intel's and the reverse. Every row of the table is one such processor. Under
each, and on one thread and on two, the tests that are marked ``exact`` must pass, and
in reproducible mode the fits of ``tests/portable_fits.py`` must have the same checksums
everywhere.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from gsebo.code_paths import instructions, processor

ROOT = Path(__file__).parents[1]
FITS = ROOT / "tests/portable_fits.py"
THREADS = (1, 2)

# Not what the caller has set, but what the row says.
_FIXED = (
    "ATEN_CPU_CAPABILITY",
    "GSEBO_REPRODUCIBLE",
    "MKL_CBWR",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "ONEDNN_MAX_CPU_ISA",
)
_AVX512 = "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_HIDDEN = "glibc.cpu.hwcaps=" + _AVX512.replace("+", "-").upper()


class Processor(NamedTuple):
    """How to have code run as it would run elsewhere.

    Attributes:
        variables: Of the environment.
        intel: Whether MKL takes it for one of Intel's; ``None`` for what it is.
    """

    variables: dict[str, str]
    intel: bool | None = None


def processors() -> dict[str, Processor]:
    """All that can be had here, by name."""
    found = {
        "this one": Processor({}),
        "of the other maker": Processor({}, "AMD" in processor()),
        "reproducible": Processor({"GSEBO_REPRODUCIBLE": "1"}),
        "SSE4.2": Processor(
            {
                "MKL_CBWR": "SSE4_2",
                "ATEN_CPU_CAPABILITY": "default",
                "ONEDNN_MAX_CPU_ISA": "SSE41",
                "NUMBA_CPU_NAME": "nehalem",
                "NUMBA_CPU_FEATURES": "+sse4.2,-avx",
                "GLIBC_TUNABLES": f"{_HIDDEN},-AVX2,-FMA",
            },
            True,
        ),
        "AVX2": Processor(
            {
                "MKL_CBWR": "AVX2",
                "ATEN_CPU_CAPABILITY": "avx2",
                "ONEDNN_MAX_CPU_ISA": "AVX2",
                "NUMBA_CPU_NAME": "haswell",
                "NUMBA_CPU_FEATURES": "+avx2,+fma",
                "GLIBC_TUNABLES": _HIDDEN,
            },
            True,
        ),
    }
    if instructions() == "avx512":
        found["AVX-512"] = Processor(
            {
                "MKL_CBWR": "AVX512",
                "ATEN_CPU_CAPABILITY": "avx512",
                "NUMBA_CPU_NAME": "skylake-avx512",
                "NUMBA_CPU_FEATURES": _AVX512,
            },
            True,
        )
    return found


def environment(
    row: Processor, threads: int, folder: Path, *, reproducible: bool = False
) -> dict[str, str]:
    """Variables under which a process computes as on that processor.

    Args:
        row: The processor.
        threads: Of torch and of the kernels.
        folder: Where there is room for a shared library.
        reproducible: Whether in that mode, which overrides what the row says of it.
    """
    own = {name: value for name, value in os.environ.items() if name not in _FIXED}
    own |= {**row.variables, "OMP_NUM_THREADS": str(threads)}
    # Those of the source tree, wherever a process is started.
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own |= {"GSEBO_REPRODUCIBLE": "1"} if reproducible else {}
    library = None if row.intel is None else _maker(row.intel, folder)
    return own if library is None else {**own, "LD_PRELOAD": str(library)}


def _maker(intel: bool, folder: Path) -> Path | None:
    """A library that tells MKL who made the processor; ``None`` without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / f"maker_{int(intel)}.so"
    if not library.exists():
        names = ("mkl_serv_intel_cpu", "mkl_serv_intel_cpu_true")
        source = "\n".join(
            f"int {name}(void) {{ return {intel:d}; }}" for name in names
        )
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, text=True, check=True)
    return library


def checksums(
    variables: dict[str, str], *options: str
) -> tuple[dict[str, str], dict[str, str] | None]:
    """Those of the fits in reproducible mode, and those that are expected, if any."""
    done = subprocess.run(
        [sys.executable, str(FITS), *options],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    return said["checksums"], said["expected"]


def main() -> int:
    """Print the table; return 1 if anything in it differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="where to look")
    parser.add_argument("--only", help="one of the processors, by its name")
    options = parser.parse_args()
    print(f"{processor()}, {instructions()}", flush=True)
    rows, failed = processors(), False
    expected: dict[str, str] | None = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in [options.only] if options.only else rows:
            for threads in THREADS:
                begun = time.monotonic()
                plain = environment(rows[row], threads, folder)
                travel = environment(rows[row], threads, folder, reproducible=True)
                found, pinned = checksums(travel, "--threads", str(threads))
                expected = pinned or expected or found
                differ = [fit for fit in found if found[fit] != expected[fit]]
                tests = _tests(plain, options.tests)
                failed |= bool(differ) or tests is not None
                print(
                    f"{row:20} {threads} thread{'s' * (threads > 1):1}  "
                    f"checksums {', '.join(differ) or 'equal'}  "
                    f"tests {tests or 'passed'}  {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    return int(failed)


def _tests(variables: dict[str, str], places: list[str]) -> str | None:
    """Run the exact tests; say what failed, if anything did."""
    pytest = [sys.executable, "-m", "pytest", "-m", "exact", "-n", "2"]
    done = subprocess.run(
        [*pytest, "-p", "no:cacheprovider", "--dist", "worksteal", *places],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == 0:
        return None
    print(done.stdout, file=sys.stderr)
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
