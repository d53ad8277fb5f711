"""`dalsegno dead-letters show`: one letter with its original bytes."""

from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings

_SHOWN_BYTES = 512


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="partition:offset, as listed")],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable, with all bytes")] = False,
) -> None:
    """Print one dead letter: reason, original key, headers, bytes."""
    from dalsegno.ops.kafka.letters import find_letter
    from dalsegno.ops.kafka.reader import Reader

    settings = read_settings()
    with Reader(settings) as reader:
        each = find_letter(reader, settings, name)
    if json:
        print_json(
            {
                "name": each.name,
                "at_ms": each.at_ms,
                "letter": each.letter,
                "requeues": each.requeues,
                "key": each.key,
                "value": each.value,
                "headers": [list(pair) for pair in each.original_headers],
            }
        )
        return
    value = each.value or b""
    rest = f" and {len(value) - _SHOWN_BYTES} bytes more" if len(value) > _SHOWN_BYTES else ""
    letter = each.letter
    source = f"{letter.topic}[{letter.partition}]:{letter.offset}"
    rows = [
        ("name", each.name),
        ("put aside", when(each.at_ms)),
        ("reason", letter.reason),
        ("detail", letter.detail),
        (
            "from",
            f"{source}, appended {when(letter.at_ms)}",
        ),
        ("kind", letter.kind or "-"),
        ("run", letter.run_id or "-"),
        ("requeued", each.requeues),
        ("key", repr(each.key)),
        *((f"header {header}", repr(data)) for header, data in each.original_headers),
        ("value", value[:_SHOWN_BYTES].hex(" ", 2) + rest),
    ]
    print_table(("what", "value"), rows, "")
