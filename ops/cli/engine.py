"""`dalsegno engine`: one engine process."""

import logging
import os
from typing import Annotated

import typer

from dalsegno.ops.cli.settings import read_settings


def engine(
    *,
    name: Annotated[str, typer.Option(help="Stable name: makes it a static member")] = "",
    host: Annotated[str, typer.Option(help="Address for HTTP")] = "",
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port for HTTP, 8470; 0: any free one")
    ] = None,
    url: Annotated[str, typer.Option(help="How others reach this engine")] = "",
    leave: Annotated[bool, typer.Option("--leave", help="Give the place up on a stop")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning, error")] = "",
) -> None:
    """Run an engine until SIGTERM; settings come from DALSEGNO_ variables.

    Exit codes: 0 stopped, 1 failed, or its HTTP port is taken, 2 settings are wrong, 3 refused by
    the start-up checks, or by a broker that does not let it in or do this, 4 evicted: another
    process has this name's place.
    """
    from dalsegno.ops.logs import configure
    from dalsegno.ops.variables import unread
    from dalsegno.streams.agents.serve import serve

    settings = read_settings(
        name=name,
        http_host=host,
        http_port=port,
        http_url=url,
        leave=leave,
        log_level=log_level,
    )
    configure(settings.log_level)
    for line in unread(os.environ):
        logging.getLogger(__name__).warning(line)
    raise typer.Exit(serve(settings))
