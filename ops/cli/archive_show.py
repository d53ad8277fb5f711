"""`dalsegno archive show`: what one segment holds."""

from typing import Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.render import plain, print_json, print_table


def show(
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="Name, as `list` prints it")],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Show a segment's manifest and its entries. Reads its index, not its payloads."""
    from dalsegno.ops.archived import open_archive

    with told(), open_archive(archive_settings()) as archive:
        manifest = archive.manifest(segment)
        index = archive.index(manifest)
    if json:
        print_json({"manifest": plain(manifest), "entries": [plain(e) for e in index.entries]})
        return
    print(f"{manifest.segment}: {manifest.size} bytes, SHA-256 {manifest.digest.hex()}")
    print_table(
        ("kind", "run", "offsets", "count", "bytes", "stored"),
        (
            (
                entry.kind.name.lower(),
                entry.name,
                f"{entry.first_offset}-{entry.last_offset}",
                entry.count,
                entry.payload_bytes,
                entry.stored_bytes,
            )
            for entry in index.entries
        ),
        empty="it is empty",
    )
