"""`dalsegno worker`: run the steps of flows."""

from typing import Annotated

import typer

from dalsegno.ops.cli.settings import read_settings


def worker(
    flows: Annotated[list[str], typer.Argument(metavar="MODULE:FLOW...", help="Flows to work on")],
    name: Annotated[str, typer.Option(help="Stable name of this worker")] = "",
    concurrency: Annotated[int, typer.Option(min=1, help="Steps at a time")] = 200,
    queue: Annotated[
        list[str] | None, typer.Option(help="Only steps of this queue; may be repeated")
    ] = None,
) -> None:
    """Run a worker until SIGTERM; it finishes or gives back what it holds."""
    from dalsegno.ops.work import work

    settings = read_settings()
    work(
        flows,
        bootstrap_servers=settings.bootstrap_servers,
        prefix=settings.prefix,
        name=name,
        concurrency=concurrency,
        log_level=settings.log_level,
        queues=queue or (),
    )
