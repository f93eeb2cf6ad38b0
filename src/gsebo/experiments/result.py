"""What became of one trial: one JSON line, from which everything shown derives."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gsebo.errors import InvalidInput
from gsebo.experiments.trial import Trial

SCHEMA = 1

_OUTCOME = (
    "test_accuracy",
    "val_accuracy",
    "val_loss",
    "best_step",
    "outer_iterations",
    "new_edges",
    "seconds",
    "peak_memory_bytes",
    "together",
    "all_parameters",
    "edges",
    "curves",
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a trial, or why it has none.

    Attributes:
        trial: What was run.
        error: What went wrong, if anything; then all figures are ``None``.
        test_accuracy: Over the test nodes, from 0 to 1, at the step that was kept.
        val_accuracy: Over the nodes that decided which step to keep, at that step.
        val_loss: Mean cross-entropy over the same.
        best_step: Number of the step that was kept.
        outer_iterations: Number of steps that were made.
        new_edges: Number of edges that the method added.
        seconds: For the fit; of fits made together, the share of each.
        peak_memory_bytes: Of the process or the GPU, of all fits made together.
        together: Number of fits made at once.
        all_parameters: Every parameter of the estimator, defaults included.
        edges: What became of the edges within and between classes, one entry for each
            layer or one for all, where the method learned a structure.
        curves: Figures of each step by name, where the trial asked for them.
        device: Where it ran.
        versions: Of the libraries.
        finished: When, in UTC.
    """

    trial: Trial
    error: str | None = None
    test_accuracy: float | None = None
    val_accuracy: float | None = None
    val_loss: float | None = None
    best_step: int | None = None
    outer_iterations: int | None = None
    new_edges: int | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    together: int | None = None
    all_parameters: dict[str, Any] | None = None
    edges: list[dict[str, Any]] | None = None
    curves: dict[str, list[float]] | None = None
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds")
    )

    @property
    def key(self) -> str:
        """That of the trial."""
        return self.trial.key

    @property
    def ok(self) -> bool:
        """Whether the trial came to its end."""
        return self.error is None

    def line(self) -> str:
        """As one line of JSON, without its end; what is ``None`` is left out."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "id": self.key,
            "trial": self.trial.to_json(),
            "status": "ok" if self.ok else "failed",
        }
        names = ("error", *_OUTCOME, "device", "versions", "finished")
        values = {name: getattr(self, name) for name in names}
        content |= {name: value for name, value in values.items() if value is not None}
        return json.dumps(content, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> "Result":
        """Read a line.

        Raises:
            InvalidInput: It is no result, or one of another schema or identity.
        """
        try:
            content = json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"not JSON ({error}); expected a result.") from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            found = content.get("schema") if isinstance(content, dict) else content
            raise InvalidInput(f"schema {found!r} given; expected {SCHEMA}.")
        trial = Trial.from_json(content.get("trial", {}))
        if content.get("id") != trial.key:
            raise InvalidInput(
                f"id {content.get('id')!r} given; its trial has {trial.key!r}."
            )
        if (content.get("status") == "ok") is ("error" in content):
            raise InvalidInput(
                f"status {content.get('status')!r} given; expected 'ok' without an "
                "error or 'failed' with one."
            )
        rest = {
            name: value
            for name, value in content.items()
            if name not in ("schema", "id", "trial", "status")
        }
        if unknown := set(rest) - set(cls.__dataclass_fields__):
            raise InvalidInput(f"{min(unknown)!r} given; a result has no such field.")
        if "error" not in rest and not isinstance(rest.get("test_accuracy"), float):
            raise InvalidInput(
                f"test_accuracy {rest.get('test_accuracy')!r} given; expected a number."
            )
        return cls(trial=trial, **rest)
