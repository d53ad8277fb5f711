"""`dalsegno recovery preview`: what would run, in which order, for how long, against what."""

from typing import Annotated

import typer

from dalsegno.ops.cli.recovery_tables import preview_tables
from dalsegno.ops.cli.render import print_json
from dalsegno.ops.cli.settings import read_settings


def preview(
    flow: Annotated[str, typer.Option(help="Only runs of this flow")] = "",
    fault_point: Annotated[str, typer.Option(help="Only what waits for this")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Runs shown per partition")] = 20,
    width: Annotated[int, typer.Option(min=1, help="Attempts side by side, per partition")] = 16,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List what is held back, in recovery order. Nothing is changed by looking."""
    from dalsegno.ops.kafka.engines import Engines

    found = Engines.find(read_settings()).recovery(flow, fault_point, limit, width)
    if json:
        print_json(found)
    else:
        preview_tables(found)
