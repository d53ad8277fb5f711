"""`dalsegno plan`: what a recovery would do, before anything of it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dalsegno.ops.cli.failures import UsageFault
from dalsegno.ops.cli.recovery_tables import preview_tables
from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings


class Drawing(StrEnum):
    """How a plan is drawn."""

    MERMAID = "mermaid"
    DOT = "dot"


def plan(
    run_id: Annotated[str, typer.Argument(metavar="[RUN]", help="Run id")] = "",
    *,
    fault_point: Annotated[str, typer.Option(help="Of all runs that wait for this one")] = "",
    width: Annotated[int, typer.Option(min=1, help="Attempts side by side")] = 16,
    draw: Annotated[Drawing | None, typer.Option(help="A graph instead of a table")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Runs shown of a fault point")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print what is kept, redone and checked first, in which order, and how long it should take."""

    from dalsegno.ops.kafka.engines import Engines
    from dalsegno.ops.plan_drawing import dot, mermaid

    if bool(run_id) == bool(fault_point):
        raise UsageFault("name a run, or a --fault-point")
    engines = Engines.find(read_settings())
    if fault_point:
        if draw is not None:
            raise UsageFault("a graph is of one run: name it")
        found = engines.recovery("", fault_point, limit, width)
        if json:
            print_json(found)
        else:
            preview_tables(found)
        return
    of_run = engines.plan(run_id, width)
    if json:
        print_json(of_run)
    elif draw is not None:
        print(mermaid(of_run) if draw is Drawing.MERMAID else dot(of_run))
    else:
        _show(of_run)


def _show(plan: dict[str, object]) -> None:
    from dalsegno.ops.plan_drawing import steps_of

    since = plan["damaged_since_ms"]
    rows = [
        ("run", plan["run_id"]),
        ("goal", plan["goal"]),
        ("state", plan["state"]),
        ("waits for", plan["waiting_for"] or "-"),
        ("damaged since", when(since) if isinstance(since, int) else "-"),
        ("plan", plan["digest"]),
        ("kept", _names(plan["kept"])),
        ("attempts lost", _lost(plan["lost"])),
        ("predicted", f"{plan['predicted_ms']} ms at width {plan['width']}"),
        ("no order beats", f"{plan['bound_ms']} ms: max(critical path, work / width)"),
        ("none is later than", f"{plan['latest_ms']} ms"),
    ]
    print_table(("what", "value"), rows, "")
    print()
    columns = ("step", "doing", "group", "begin_ms", "end_ms", "usual_ms", "learned", "unknown")
    print_table(
        columns,
        ((*(_names(step[column]) for column in columns),) for step in steps_of(plan)),
        "nothing is left to do",
    )


def _names(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value == -1 else str(value)


def _lost(value: object) -> str:
    rows = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return ", ".join(f"{row['step']}:{row['epoch']} ({row['by']})" for row in rows) or "-"
