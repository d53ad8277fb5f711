"""`dalsegno schemas show`: one schema, or the list of all."""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import NotFound
from dalsegno.ops.cli.render import print_json, print_table


def show(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Name of a kind; without it all are listed")
    ] = "",
    version: Annotated[int, typer.Option(min=0, help="Schema version; 0: the newest")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print a schema of the wire contract, or list all kinds and versions."""
    from dalsegno.schemas.kinds import family_of
    from dalsegno.schemas.registry import registry

    if kind:
        versions = registry().by_kind.get(kind)
        if versions is None or version > len(versions):
            name = f"{kind} v{version}" if version else kind
            raise NotFound(f"no schema {name}: see `dalsegno schemas show`")
        print(versions[version - 1].text)
        return
    rows = [
        {
            "kind": each.kind,
            "version": each.version,
            "family": family_of(each.kind).value,
            "fingerprint": each.fingerprint.hex(),
        }
        for each in registry().all()
    ]
    if json:
        print_json(rows)
    else:
        columns = ("kind", "version", "family", "fingerprint")
        print_table(columns, ([row[c] for c in columns] for row in rows), "no schemas")
