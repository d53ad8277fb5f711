"""`dalsegno runs`: what the engines hold."""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import UsageFault
from dalsegno.ops.cli.render import print_json, print_table, tell
from dalsegno.ops.cli.settings import read_settings


def runs(
    state: Annotated[str, typer.Option(help="Only runs in this state")] = "",
    flow: Annotated[str, typer.Option(help="Only runs of this flow")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many")] = 100,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List runs of all partitions."""
    from dalsegno.ops.kafka.engines import Engines
    from dalsegno.ops.run_view import RUN_COLUMNS, run_row
    from dalsegno.schemas.outputs import RunState

    if state and state not in list(RunState):
        raise UsageFault(f"--state {state}: write one of {', '.join(RunState)}")
    listing = Engines.find(read_settings()).runs(state, flow, limit)
    found = listing.runs
    if not listing.complete and len(found) < limit:
        tell("an engine has looked at a part of its runs only: others may be of this kind, too")
    if json:
        print_json(found)
        return
    print_table(RUN_COLUMNS, (run_row(run) for run in found), "no runs")
