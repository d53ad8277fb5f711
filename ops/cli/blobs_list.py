"""`dalsegno blobs list`: the large values in the bucket."""

from typing import Annotated

import typer

from dalsegno.ops.cli.blobs_open import blob_store
from dalsegno.ops.cli.render import print_json, print_table, when


def list_(
    partition: Annotated[int, typer.Option(help="Only this one; -1: all")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List large values, by partition and digest. Needs nothing but the bucket."""
    with blob_store() as store:
        found = list(store.stored(None if partition < 0 else partition))
    if json:
        print_json(
            [
                {
                    "partition": each.partition,
                    "digest": each.digest.hex(),
                    "bytes": each.size,
                    "put_at_ms": each.at_ms,
                    "key": each.key,
                }
                for each in found
            ]
        )
        return
    print_table(
        ("partition", "digest", "bytes", "put at"),
        ((each.partition, each.digest.hex(), each.size, when(each.at_ms)) for each in found),
        empty="no large value is stored",
    )
