"""`dalsegno blobs verify`: whether the large values in the bucket are what they are called."""

from typing import Annotated

import typer

from dalsegno.ops.cli.blobs_open import blob_store
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table, progress_bar


def verify(
    partition: Annotated[int, typer.Option(help="Only this one; -1: all")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Read every large value and compare its digest. Exit code 1 when one is damaged.

    Needs nothing but the bucket.
    """
    with blob_store() as store, progress_bar() as bar:
        task = bar.add_task("reading", total=None)
        count, damaged = 0, []
        for each in store.stored(None if partition < 0 else partition):
            count += 1
            if not store.whole(each):
                damaged.append(each)
            bar.advance(task)
    if json:
        print_json({"values": count, "damaged": [each.key for each in damaged]})
    else:
        print(f"{count} large values were read")
        print_table(
            ("partition", "digest", "key"),
            ((each.partition, each.digest.hex(), each.key) for each in damaged),
            empty="each is what it is called",
        )
    return ExitCode.FOUND if damaged else ExitCode.OK
