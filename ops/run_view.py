"""Runs as people and programs see them, from what an engine answers."""

import base64
import datetime as dt
from collections.abc import Mapping
from typing import Final, NamedTuple

from dalsegno.schemas import values

Fields = Mapping[str, object]

# Steps in these states are what the run is at.
_ACTIVE = (
    "running",
    "dispatched",
    "backing_off",
    "held",
    "awaiting_approval",
    "missing_info",
    "escalated",
    "compensating",
    "ready",
)


def task_context(run: Fields) -> dict[str, object]:
    """The opening of `show --json`: what the context-mode pattern calls a TaskContext.

    `trace_id` is the run id. `stage` is the step that the run is at, or its state when it is at
    none. `payload` is the context, without fields marked secret. `step_token` names the attempt
    (`step:epoch`), and is empty when none is under way. Times are ISO 8601 in UTC, or null.
    """
    step = current_step(run)
    token = f"{step['step']}:{step['epoch']}" if step and _number(step, "epoch") else ""
    return {
        "trace_id": run.get("run_id"),
        "stage": step["step"] if step else run.get("state") or run.get("kind"),
        "payload": context_of(run),
        "step_token": token,
        "created_at": _time(_number(run, "started_ms")),
        "updated_at": _time(_number(run, "updated_ms")),
        "expires_at": _time(_number(run, "expires_ms")),
    }


def current_step(run: Fields) -> Fields | None:
    """The step furthest on its way, the first of the plan among equals."""
    steps = [step for step in steps_of(run) if step.get("state") in _ACTIVE]
    return min(steps, key=lambda step: _ACTIVE.index(str(step["state"])), default=None)


def steps_of(run: Fields) -> list[Fields]:
    """The steps, in the order of the plan."""
    found = run.get("steps")
    return [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []


def context_of(run: Fields) -> values.Value:
    """The run's context as values; an empty map when the answer has none."""
    packed = run.get("context")
    return values.unpack(base64.b64decode(packed)) if isinstance(packed, str) and packed else {}


class ContextLine(NamedTuple):
    """A context field. `version`: of the schema that its value is of, 0 if the answer does not say.
    A secret has no value here.
    """

    field: str
    version: int
    secret: bool
    value: values.Value

    def shown(self) -> dict[str, object]:
        """The line for JSON, under the field's name."""
        said: dict[str, object] = {"version": self.version, "secret": self.secret}
        return said if self.secret else {**said, "value": self.value}


def context_lines(run: Fields) -> list[ContextLine]:
    """The fields of the run's context by name, secrets among them without their values."""
    context = context_of(run)
    shown = context if isinstance(context, dict) else {}
    secrets = run.get("secrets_omitted")
    masked = [str(name) for name in secrets] if isinstance(secrets, list) else []
    pairs = run.get("field_versions")
    newer = {str(pair[0]): int(pair[1]) for pair in pairs} if isinstance(pairs, list) else {}
    base = _number(run, "context_schema_version")
    return [
        ContextLine(name, newer.get(name, base), name in masked, shown.get(name))
        for name in sorted({*shown, *masked})
    ]


RUN_COLUMNS: Final = ("run", "flow", "state", "run version", "steps done", "at", "expires")


def run_row(run: Fields) -> tuple[object, ...]:
    """As `RUN_COLUMNS`: steps done are of all, `at` is the step it is at."""
    steps = steps_of(run)
    left = _number(run, "steps_left")
    done = f"{len(steps) - left}/{len(steps)}" if steps else "-"
    step = current_step(run)
    return (
        run.get("run_id"),
        f"{run.get('flow')} v{run.get('flow_version')}" if run.get("flow") else "-",
        _state(run),
        run.get("run_version"),
        done,
        f"{step['step']} ({step['state']})" if step else "-",
        _time(_number(run, "expires_ms")) or "-",
    )


def _state(run: Fields) -> object:
    state = run.get("state") or run.get("kind")
    return f"{state} (archived)" if run.get("kind") == "archived" else state


def _number(fields: Fields, name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _time(at_ms: int) -> str | None:
    if not at_ms:
        return None
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
