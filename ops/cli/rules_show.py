"""`dalsegno rules show`: which rules the fold decides by, and who knows which."""

from typing import Annotated

import typer

from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.settings import read_settings


def show(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print the rules in force and those that each partition's owner knows."""
    from dalsegno.ops.kafka.engines import claims
    from dalsegno.ops.kafka.in_force import rules_of
    from dalsegno.schemas.control import RulesChanged

    settings = read_settings()
    owners = claims(settings)
    rows: list[dict[str, object]] = []
    for each in read_in_force(settings, RulesChanged):
        claim = owners.get(each.partition)
        rows.append(
            {
                "partition": each.partition,
                "rules": rules_of(each),
                "owner": claim.owner if claim else "",
                "knows": list(claim.rules_known) if claim else [],
                "code": claim.code_version if claim else "",
            }
        )
    if json:
        print_json(rows)
    else:
        columns = ("partition", "rules", "owner", "knows", "code")
        print_table(columns, ([row[c] for c in columns] for row in rows), "no partitions")
