"""Runs cases in processes of their own, and tells what became of each.

Processes are forked after everything is imported, so that a case costs milliseconds,
and each runs one batch. Where one dies, the case that it was at is at fault, and
another process runs the rest of the batch. The seed, the number of the batch and that
of the case tell what is drawn.
"""

import faulthandler
import gc
import hashlib
import multiprocessing
import os
import resource
import shutil
import stat
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzz.target import Target, Violation
from gsebo.errors import InputWarning, InvalidInput, escaped

REFUSED, ACCEPTED, VIOLATION = "refused", "accepted", "violation"
BATCH = 50
_SECONDS = 20.0
_GRACE = 10.0
# More than any case needs, and less than a claim of a file could take.
_BYTES = 6 * 2**30
_FORK = multiprocessing.get_context("fork")
_OUTPUT = "output.txt"


@final
@dataclass(frozen=True)
class Limits:
    """What one case may take.

    Attributes:
        seconds: Of time.
        memory: Bytes beyond those of a process that has run none.
    """

    seconds: float = _SECONDS
    memory: int = _BYTES


@final
@dataclass
class Tally:
    """What became of the cases of a target.

    Attributes:
        counts: Number of cases by what became of them.
        seconds: That they took.
        findings: Violations: where, and what.
    """

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((REFUSED, ACCEPTED, VIOLATION), 0)
    )
    seconds: float = 0.0
    findings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Number of all."""
        return sum(self.counts.values())


@final
@dataclass
class _Job:
    """Cases of one target that are drawn together.

    Attributes:
        target: The target.
        prepared: What its cases start from.
        seed: Of everything.
        number: Of the batch.
        cases: How many to draw.
        wanted: Numbers of those to run.
    """

    target: Target
    prepared: Path
    seed: int
    number: int
    cases: int
    wanted: range

    def name(self, case: int) -> str:
        """What tells one case from all others, and repeats it."""
        return f"{self.target.name}:{self.seed}:{self.number}:{case}"


@final
class _Worker:
    """A process that runs a batch, seen from outside."""

    def __init__(self, job: _Job, workspace: Path, limits: Limits) -> None:
        self.job, self.workspace, self._limits = job, workspace, limits
        workspace.mkdir()
        self.messages, theirs = _FORK.Pipe(duplex=False)
        self.process: BaseProcess = _FORK.Process(
            target=_work, args=(job, theirs, workspace, limits), daemon=True
        )
        self.process.start()
        theirs.close()
        self.running: int | None = None
        self.since = time.monotonic()

    def is_late(self) -> bool:
        """Whether the process did not even end itself when it should have."""
        allowed = self._limits.seconds + _GRACE
        # Before its first case, a process loads what was compiled.
        return time.monotonic() - self.since > allowed + 30 * (self.running is None)

    def why_it_died(self) -> str:
        """What can be told of a process that is no more."""
        self.process.join()
        output = self.workspace / _OUTPUT
        said = output.read_text("utf-8", "replace") if output.is_file() else ""
        code = self.process.exitcode
        how = "the process hung" if "Timeout" in said else f"the process died ({code})"
        return f"{how}\n{said[-4000:]}"

    def forget(self) -> None:
        """End it, where it has not, and remove its files."""
        self.process.kill()
        self.process.join()
        self.messages.close()
        shutil.rmtree(self.workspace, ignore_errors=True)


@final
class Fuzzer:
    """Runs batches of several targets side by side.

    Args:
        targets: What to fuzz.
        folder: For files while it runs.
        keep: Where inputs that did harm are kept.
        limits: Of one case.
        say: Told of every violation.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        folder: Path,
        keep: Path,
        limits: Limits | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._targets, self._folder, self._keep = targets, folder, keep
        self._limits, self._say = limits or Limits(), say
        self._places = iter(range(10**9))
        self.tallies = {target.name: Tally() for target in targets}

    def prepare(self, workers: int = 1) -> None:
        """Have every target write what its cases start from.

        Not in this process: threads that a fit has started would not survive a fork.

        Args:
            workers: Processes at once.
        """
        waiting = list(self._targets)
        running: dict[int, tuple[BaseProcess, str]] = {}
        while waiting or running:
            while waiting and len(running) < workers:
                target = waiting.pop(0)
                place = self._prepared(target)
                place.mkdir(parents=True)
                process = _FORK.Process(target=target.prepare, args=(place,))
                process.start()
                running[process.sentinel] = process, target.name
            for sentinel in wait(list(running)):
                process, name = running.pop(sentinel)  # type: ignore[call-overload]
                process.join()
                if process.exitcode:
                    raise SystemExit(f"{name} could not be prepared.")

    def run(self, cases: int, seconds: float, from_seed: int, workers: int) -> None:
        """Run cases until there were enough, or time is up.

        Args:
            cases: Of all targets together, divided by their shares.
            seconds: After which no batch begins.
            from_seed: Of everything.
            workers: Processes at once.
        """
        end = time.monotonic() + seconds
        jobs = self._jobs(cases, from_seed)
        running: list[_Worker] = []
        waiting: list[_Job] = []
        while True:
            while len(running) < workers and time.monotonic() < end:
                job = waiting.pop() if waiting else next(jobs, None)
                if job is None:
                    break
                running.append(self._start(job))
            if not running:
                return
            wait([worker.messages for worker in running], timeout=1.0)
            for worker in list(running):
                if not self._follow(worker):
                    running.remove(worker)
                    waiting += self._rest(worker)
                    worker.forget()

    def repeat(self, name: str) -> None:
        """Run the one case of that name."""
        target, from_seed, number, case = name.split(":")
        found = {each.name: each for each in self._targets}[target]
        wanted = range(int(case), int(case) + 1)
        job = self._job(found, int(from_seed), int(number), BATCH, wanted)
        worker = self._start(job)
        while self._follow(worker):
            wait([worker.messages], timeout=1.0)
        self._rest(worker)
        worker.forget()

    def _job(
        self, target: Target, of_seed: int, number: int, cases: int, wanted: range
    ) -> _Job:
        return _Job(target, self._prepared(target), of_seed, number, cases, wanted)

    def _jobs(self, cases: int, from_seed: int) -> Iterator[_Job]:
        """Batches in turns, so that every target has its share whenever time is up."""
        shares = sum(target.share for target in self._targets)
        left = {
            target.name: -(-cases * target.share // shares) for target in self._targets
        }
        number = 0
        while any(left.values()):
            for target in self._targets:
                for _ in range(target.share):
                    if size := min(BATCH, left[target.name]):
                        left[target.name] -= size
                        wanted = range(size)
                        yield self._job(target, from_seed, number, BATCH, wanted)
                        number += 1

    def _prepared(self, target: Target) -> Path:
        return self._folder / "prepared" / target.name

    def _start(self, job: _Job) -> _Worker:
        place = self._folder / f"worker{next(self._places)}"
        return _Worker(job, place, self._limits)

    def _follow(self, worker: _Worker) -> bool:
        """Take down what a process has to say; whether it is still at work."""
        try:
            while worker.messages.poll():
                number, outcome, text, seconds = worker.messages.recv()
                worker.since = time.monotonic()
                worker.running = number if outcome is None else None
                if outcome is not None:
                    self._note(worker, number, outcome, text, seconds)
                    worker.job.wanted = range(number + 1, worker.job.wanted.stop)
        except EOFError:
            return False
        if worker.is_late():
            worker.process.kill()
            worker.process.join()
        return True

    def _rest(self, worker: _Worker) -> list[_Job]:
        """What is left of a batch whose process has ended."""
        job = worker.job
        worker.process.join()
        if worker.running is None:
            if worker.process.exitcode:
                self._note(worker, -1, VIOLATION, worker.why_it_died(), 0.0)
            return []
        self._note(worker, worker.running, VIOLATION, worker.why_it_died(), 0.0)
        job.wanted = range(worker.running + 1, job.wanted.stop)
        return [job] if job.wanted else []

    def _note(
        self, worker: _Worker, case: int, outcome: str, text: str, seconds: float
    ) -> None:
        tally = self.tallies[worker.job.target.name]
        tally.counts[outcome] += 1
        tally.seconds += seconds
        if outcome != VIOLATION:
            return
        name = worker.job.name(case)
        kept = self._keep / name.replace(":", "-")
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        place = worker.workspace / str(case)
        if place.is_dir():
            shutil.copytree(place, kept / "input", symlinks=True, copy_function=_plain)
        drawn = worker.workspace / f"{case}.txt"
        described = drawn.read_text("utf-8") if drawn.is_file() else ""
        (kept / "report.txt").write_text(f"{text}\n\n{described}\n", "utf-8", "replace")
        tally.findings.append((name, text))
        self._say(
            f"VIOLATION {name}: {_last_line(text)}\n  {described[:300]}\n"
            f"  input and report: {kept}\n"
            f"  again: python -m fuzz --repeat {name}"
        )


def _plain(source: str, target: str) -> None:
    if stat.S_ISREG(os.stat(source).st_mode):
        shutil.copyfile(source, target)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "nothing is known of it"
    return first if first.startswith("the process") else (lines or [first])[-1][:300]


# --- in the process that runs a batch ------------------------------------------------


def _work(job: _Job, messages: Connection, workspace: Path, limits: Limits) -> None:
    output = (workspace / _OUTPUT).open("w")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    os.environ["GSEBO_CACHE"] = str(workspace / "cache")
    os.environ.pop("GSEBO_DATA", None)
    faulthandler.enable(output)
    _bound_memory(limits.memory)
    job.target.begin(job.prepared)
    # All before the first is run: what is drawn may depend on what is imported.
    cases = _drawn(job)
    gc.freeze()
    for number in job.wanted:
        if number >= len(cases):
            break
        case, begin = cases[number], time.monotonic()
        place = workspace / str(number)
        place.mkdir()
        (workspace / f"{number}.txt").write_text(_shown(case), "utf-8", "replace")
        messages.send((number, None, "", 0.0))
        faulthandler.dump_traceback_later(limits.seconds, exit=True, file=output)
        outcome, text = _tried(job.target, case, place)
        faulthandler.cancel_dump_traceback_later()
        messages.send((number, outcome, text, time.monotonic() - begin))
        if outcome != VIOLATION:
            shutil.rmtree(place, ignore_errors=True)


def _shown(case: Any) -> str:
    try:
        return repr(case)
    except (ValueError, RecursionError) as error:
        return f"a case that Python does not write out ({error})"


def _bound_memory(most: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft = pages * resource.getpagesize() + most
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))
    # A crash is told by faulthandler; a file of all memory would take long to write.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _drawn(job: _Job) -> list[Any]:
    found: list[Any] = []
    key = f"{job.seed} {job.target.name} {job.number}".encode()

    @seed(int.from_bytes(hashlib.sha256(key).digest()[:8]))
    @settings(
        max_examples=job.cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        found.append(job.target.draw(data.draw))

    draw()
    return found


def _tried(target: Target, case: Any, place: Path) -> tuple[str, str]:
    """What becomes of one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", InputWarning)
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        warnings.filterwarnings("ignore", "training diverged", RuntimeWarning)
        try:
            target.write(case, place)
            before = _tree(place, target.may_leave)
            try:
                target.read(case, place)
                outcome, text = ACCEPTED, ""
            except InvalidInput as error:
                outcome, text = REFUSED, str(error)
                _check_sentence(text)
            after = _tree(place, target.may_leave)
            if outcome == REFUSED and after != before:
                raise Violation(_difference("refused", before, after))
            same = before.items() <= after.items()
            if outcome == ACCEPTED and not same and not target.may_change:
                raise Violation(_difference("accepted", before, after))
        except Violation as error:
            return VIOLATION, str(error)
        except BaseException:
            return VIOLATION, traceback.format_exc()
    return outcome, text


def _check_sentence(text: str) -> None:
    if len(text.splitlines()) != 1 or text != escaped(text, longest=len(text)):
        raise Violation(f"a refusal that is not one line that can be shown: {text!r}")
    if len(text) > 6000:
        raise Violation(f"a refusal of {len(text)} characters: {text[:300]!r}")


def _tree(place: Path, but: frozenset[str]) -> dict[str, str]:
    """What lies in a folder, to be compared with later."""
    found = {}
    for path in place.rglob("*"):
        if path.name in but:
            continue
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else b""
        seal = hashlib.sha256(content).hexdigest()
        found[str(path.relative_to(place))] = f"{mode:o} {seal}"
    return found


def _difference(outcome: str, before: dict[str, str], after: dict[str, str]) -> str:
    names = before.keys() | after.keys()
    changed = sorted(name for name in names if before.get(name) != after.get(name))
    return f"{outcome}, and these files were left behind or changed: {changed!r}"
