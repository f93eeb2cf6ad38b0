"""Which code the libraries below run, fixed before they are loaded.

torch, MKL, oneDNN and numba choose their code by the processor, MKL on some processors
even by where in memory a matrix lies; each choice rounds differently. What is fixed
here is fixed by environment variables, which those libraries read once, so this module
is the first that the package imports and imports none of them. Whoever has set such a
variable is left alone, unless reproducible mode is asked for.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path

from gsebo.errors import InvalidInput, escaped

_ASKED = "GSEBO_REPRODUCIBLE"

# What a processor must have for the code below, by its names in /proc/cpuinfo.
_NEEDED = frozenset(
    ["avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm", "popcnt", "ssse3", "sse4_2"]
)

# All that x86-64-v3 stands for: given a name alone, numba adds what the processor has.
_FEATURES = (
    "+avx,+avx2,+bmi,+bmi2,+crc32,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sahf,"
    "+sse3,+sse4.1,+sse4.2,+ssse3,+xsave"
)
_NUMBA = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": _FEATURES}

_ATEN = {"ATEN_CPU_CAPABILITY": "avx2"}

# MKL's only code that is the same on the processors of all makers.
_SAME_EVERYWHERE = {
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NUMBA_DISABLE_INTEL_SVML": "1",
    **_ATEN,
    **_NUMBA,
}

# Numbers of MKL's own interface.
_MKL_BRANCH = 1
_MKL_CODES = {
    "default": 1,
    "auto": 2,
    "compatible": 3,
    "sse2": 4,
    "ssse3": 6,
    "sse4_1": 7,
    "sse4_2": 8,
    "avx": 9,
    "avx2": 10,
    "avx512": 12,
    "avx512_e1": 14,
}


def fix_code_paths() -> None:
    """Fix what can still be fixed; the package calls this when it is imported."""
    _decided_waiting()
    # Idle OpenMP threads sleep: by default they spin, and where cores are short or
    # shared that slows a small fit down tenfold.
    free = {"OMP_WAIT_POLICY": "PASSIVE"}
    # One choice for each processor, wherever a matrix lies; no other costs nothing.
    free["MKL_CBWR"] = "AUTO"
    if _has_needed():
        free |= _ATEN
        if not any(name in os.environ for name in _NUMBA):
            free |= _NUMBA
    for name, value in free.items():
        os.environ.setdefault(name, value)
    if os.environ.get(_ASKED) == "1" and _has_needed():
        os.environ.update(_SAME_EVERYWHERE)
    _tell_loaded_libraries()


def set_reproducible() -> None:
    """Compute the same bits on every x86-64 processor with AVX2, on any threads.

    Must be called before anything is computed with torch or numba, at best before they
    are imported; or set ``GSEBO_REPRODUCIBLE=1``. Processes that are started later
    inherit it. Dense products take longer: see ``docs/how/reproducibility.md``.

    Raises:
        InvalidInput: If the processor cannot, or if it is too late.
    """
    before = {name: os.environ.get(name) for name in (_ASKED, *_SAME_EVERYWHERE)}
    os.environ[_ASKED] = "1"
    fix_code_paths()
    try:
        require_code_paths()
    except InvalidInput:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        raise


def is_reproducible() -> bool:
    """Whether reproducible mode was asked for; what is neither 0 nor 1 is refused."""
    given = os.environ.get(_ASKED, "")
    if given not in ("", "0", "1"):
        raise InvalidInput(
            f"{_ASKED}={escaped(given, longest=40)!r} given; expected 0 or 1."
        )
    return given == "1"


def require_code_paths() -> None:
    """Raise `InvalidInput` if reproducible mode was asked for and does not hold."""
    if not is_reproducible():
        return
    if not _has_needed():
        raise InvalidInput(
            f"reproducible mode asked for on {processor()}; expected an x86-64 "
            "processor with AVX2 and FMA, under Linux."
        )
    # What is not loaded yet will read the variables.
    wrong = [
        library
        for library, (module, state, expected) in _STATES.items()
        if module in sys.modules and state() != expected
    ]
    if wrong:
        raise InvalidInput(
            f"reproducible mode asked for after {' and '.join(wrong)} had chosen other "
            f"code; expected {_ASKED}=1 or gsebo.set_reproducible() before anything is "
            "computed."
        )


def reproducibility() -> dict[str, str | bool]:
    """What is fixed in this process, as the libraries themselves say it.

    Returns:
        ``reproducible``: Whether reproducible mode was asked for and holds.
        ``processor``: Its model.
        ``instructions``: The widest vectors that the processor has.
        ``mkl``, ``aten``, ``numba``: Which code they run; ``"auto"`` is one choice for
        each processor, ``"default"`` one for each place in memory.
        ``waiting``: What idle threads of OpenMP do.
    """
    # Not what the variables say: what was loaded before them never read them.
    import numba  # noqa: F401
    import torch  # noqa: F401

    found = {name: state() for name, (_, state, _) in _STATES.items()}
    holds = found == {name: expected for name, (_, _, expected) in _STATES.items()}
    return {
        "reproducible": is_reproducible() and holds,
        "processor": processor(),
        "instructions": instructions(),
        "mkl": found["MKL"],
        "aten": found["ATen"],
        "numba": found["numba"],
        "waiting": _decided_waiting(),
    }


def processor() -> str:
    """Model of the processor."""
    return _cpuinfo().get("model name") or platform.machine() or "an unknown processor"


def instructions() -> str:
    """The widest vectors that the processor has: ``"avx512"``, ``"avx2"``, ..."""
    names = {"avx512f": "avx512", "avx2": "avx2", "sse4_2": "sse4_2"}
    known = (name for flag, name in names.items() if flag in _flags())
    return next(known, platform.machine() or "unknown")


@cache
def _decided_waiting() -> str:
    """What idle threads of OpenMP do: decided when torch was loaded, or here."""
    late = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
    decided = "default" if late else os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
    return decided.lower()


@cache
def _cpuinfo() -> Mapping[str, str]:
    """What Linux says of the first core; nothing elsewhere."""
    if not sys.platform.startswith("linux"):
        return {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            pairs = (line.partition(":") for line in takewhile(str.strip, lines))
            return {name.strip(): value.strip() for name, _, value in pairs}
    except OSError:
        return {}


def _flags() -> frozenset[str]:
    return frozenset(_cpuinfo().get("flags", "").split())


def _has_needed() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and _flags() >= _NEEDED


def _tell_loaded_libraries() -> None:
    """Pass on what was set to libraries that have read the variables already.

    They take it as long as they have computed nothing. ATen reads its variable only
    then; what OpenMP's threads do when idle cannot be changed any more.
    """
    if "torch" in sys.modules and (change := _mkl("mkl_serv_cbwr_set")) is not None:
        wanted = os.environ["MKL_CBWR"].lower()
        # Whoever has chosen has been heard: MKL reads its variable when it computes.
        if wanted in ("auto", "compatible"):
            change(_MKL_CODES[wanted])
    if "numba" in sys.modules:
        from numba.core import config, registry

        if "_toplevel_target_context" not in registry.cpu_target.__dict__:
            config.reload_config()


def _mkl(function: str) -> Callable[..., int] | None:
    """A function of the MKL inside torch, where there is one."""
    try:
        place = Path(sys.modules["torch"].__path__[0]) / "lib/libtorch_cpu.so"
        found: Callable[..., int] = getattr(ctypes.CDLL(str(place)), function)
    except (OSError, AttributeError):
        return None
    return found


def _mkl_state() -> str:
    ask = _mkl("mkl_serv_cbwr_get")
    if ask is None:
        return "unknown"
    code = ask(_MKL_BRANCH)
    return next((name for name, one in _MKL_CODES.items() if one == code), str(code))


def _aten_state() -> str:
    return str(sys.modules["torch"].backends.cpu.get_cpu_capability()).lower()


def _numba_state() -> str:
    from numba.core import registry

    _, name, features = registry.cpu_target.target_context.codegen().magic_tuple()
    fixed = (name, features) == tuple(_NUMBA.values())
    return str(name) if fixed or name != _NUMBA["NUMBA_CPU_NAME"] else f"{name} mixed"


_STATES: Mapping[str, tuple[str, Callable[[], str], str]] = {
    "MKL": ("torch", _mkl_state, "compatible"),
    "ATen": ("torch", _aten_state, "avx2"),
    "numba": ("numba", _numba_state, _NUMBA["NUMBA_CPU_NAME"]),
}
