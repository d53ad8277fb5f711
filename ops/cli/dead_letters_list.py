"""`dalsegno dead-letters list`: what was put aside, and why."""

from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings


def list_letters(
    reason: Annotated[str, typer.Option(help="Only letters with this reason")] = "",
    run: Annotated[str, typer.Option(help="Only letters of this run")] = "",
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List dead letters by partition and offset."""
    from dalsegno.ops.kafka.letters import read_letters
    from dalsegno.ops.kafka.reader import Reader

    settings = read_settings()
    with Reader(settings) as reader:
        letters = [
            each
            for each in read_letters(reader, settings)
            if reason in ("", each.letter.reason) and run in ("", each.letter.run_id)
        ]
    if json:
        print_json(
            [{"name": each.name, "at_ms": each.at_ms, "letter": each.letter} for each in letters]
        )
        return
    print_table(
        ("name", "at", "reason", "kind", "run", "from", "detail"),
        (
            (
                each.name,
                when(each.at_ms),
                each.letter.reason,
                each.letter.kind or "-",
                each.letter.run_id or "-",
                f"{each.letter.topic}[{each.letter.partition}]:{each.letter.offset}",
                each.letter.detail[:120],
            )
            for each in letters
        ),
        "no dead letters",
    )
