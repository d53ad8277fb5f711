"""`dalsegno show`: one run, as its partition's owner holds it."""

from collections.abc import Mapping
from typing import Annotated

import typer

from dalsegno.ops.cli.failures import Refused
from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings
from dalsegno.ops.cli.show_at import show_at


def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    context_only: Annotated[
        bool, typer.Option("--context", help="The context alone, every value whole")
    ] = False,
    at: Annotated[
        int, typer.Option("--at", min=-1, help="As it was at this run version; -1: as it is now")
    ] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print a run: its state, its context and its steps.

    With --context, the context with the schema version of each field; secrets are masked.
    With --at its facts at an earlier run version: from its snapshot chain, or folded from the log.

    With --json the document opens with the fields of a TaskContext; `run` holds the rest.
    """
    from dalsegno.ops.kafka.engines import Engines
    from dalsegno.ops.run_view import context_of, task_context

    if at >= 0:
        show_at(run_id, at, json=json)
        return
    run = Engines.find(read_settings()).run(run_id)
    if context_only and run.get("kind") == "archived":
        raise Refused(f"run {run_id} is in the archive: `dalsegno restore {run_id}` brings it back")
    if context_only:
        _show_context(run, json=json)
        return
    if json:
        rest = {name: value for name, value in run.items() if name != "context"}
        print_json({**task_context(run), "run": rest})
        return
    _show_run(run)
    if isinstance(run.get("archived"), dict):
        return
    context = context_of(run)
    print()
    fields = context.items() if isinstance(context, dict) else ()
    print_table(("field", "value"), ((name, repr(value)[:200]) for name, value in fields), "")
    print()
    _show_steps(run)


def _show_run(run: Mapping[str, object]) -> None:
    from dalsegno.ops.run_view import RUN_COLUMNS, run_row

    rows = [*zip(RUN_COLUMNS, run_row(run), strict=True)]
    told = ("waiting_for", "reason", "detail", "gate", "context_bytes")
    rows += [(name.replace("_", " "), run[name]) for name in told if run.get(name)]
    archived = run.get("archived")
    if isinstance(archived, dict):
        rows += _archived(archived, run)
    print_table(("what", "value"), rows, "")


def _show_steps(run: Mapping[str, object]) -> None:
    from dalsegno.ops.run_view import steps_of

    columns = ("step", "state", "epoch", "failures", "infra_failures", "worker", "reason")
    print_table(
        (*(column.replace("_", " ") for column in columns), "timeout", "heartbeat", "due"),
        (
            (
                *(step.get(column, "") for column in columns),
                _seconds(step, "timeout_ms"),
                _seconds(step, "heartbeat_ms"),
                _due(step),
            )
            for step in steps_of(run)
        ),
        "a run that has ended keeps no steps: `dalsegno replay RUN` has its history"
        if run.get("kind") == "ended"
        else "no steps",
    )


def _archived(
    archived: Mapping[str, object], run: Mapping[str, object]
) -> list[tuple[str, object]]:
    """What a run in the archive says instead of its context and its steps."""
    rows: list[tuple[str, object]] = [("archived in", archived.get("segment"))]
    if archived.get("wanted_by"):
        rows.append(("to come back for", archived["wanted_by"]))
        rows.append(("events that wait", run.get("events_waiting")))
    if archived.get("trouble"):
        rows.append(("not back, since it is", archived["trouble"]))
    return rows


def _show_context(run: Mapping[str, object], *, json: bool) -> None:
    from dalsegno.ops.run_view import context_lines

    lines = context_lines(run)
    if json:
        print_json(
            {
                "run_id": run.get("run_id"),
                "run_version": run.get("run_version"),
                "schema": run.get("context_schema", ""),
                "fields": {line.field: line.shown() for line in lines},
            }
        )
        return
    print_table(
        ("field", "version", "value"),
        (
            (line.field, line.version or "-", "(secret)" if line.secret else repr(line.value))
            for line in lines
        ),
        "the context has no field",
    )


def _seconds(step: Mapping[str, object], name: str) -> str:
    value = step.get(name)
    return f"{value / 1_000:g} s" if isinstance(value, int) and value else "-"


def _due(step: Mapping[str, object]) -> str:
    """When the step's deadline is. On live time, which is no time of day, it is only named."""
    due_ms = step.get("due_ms")
    if not isinstance(due_ms, int) or not due_ms:
        return "-"
    return "on live time" if step.get("due_live") else when(due_ms)
