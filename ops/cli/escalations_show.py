"""`dalsegno escalations show`: one package on one screen."""

import time
from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json
from dalsegno.ops.cli.settings import read_settings


def show(
    name: Annotated[str, typer.Argument(metavar="PACKAGE", help="The package, as listed")],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Show what is asked, what is known, what you can decide, and what each way would do."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.people.packages import Filter, find_open, read_open
    from dalsegno.streams.core.people.screen import screen

    settings = read_settings()
    wanted = Filter(run=name.rpartition("#")[0], notices=True)
    with Reader(settings) as reader:
        found = read_open(reader, settings, time.time_ns() // 1_000_000, wanted)
    package = find_open(found, name)
    if json:
        print_json(package)
        return
    console = Console()
    console.print(Text(package.escalation_id, style="bold"))
    for heading, lines in screen(package):
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2)))
