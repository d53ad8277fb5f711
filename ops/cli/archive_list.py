"""`dalsegno archive list`: the segments in the bucket."""

from typing import Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.render import plain, print_json, print_table, when


def list_(
    partition: Annotated[int, typer.Option(help="Only this one; -1: all")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List segments, by partition and offset; those of states of runs last.

    Needs nothing but the bucket.
    """
    from dalsegno.ops.archived import open_archive

    with told(), open_archive(archive_settings()) as archive:
        found = list(archive.manifests(None if partition < 0 else partition))
    if json:
        print_json([plain(each) for each in found])
        return
    print_table(
        ("segment", "events", "records", "runs", "bytes", "newest"),
        (
            (
                each.segment,
                f"{each.first_offset}-{each.last_offset}" if each.records else "-",
                each.records,
                len(each.run_ids),
                each.size,
                when(each.created_at_ms),
            )
            for each in found
        ),
        empty="nothing is archived yet",
    )
