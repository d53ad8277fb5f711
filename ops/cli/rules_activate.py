"""`dalsegno rules activate`: let the fold decide by other rules from a marker in the log on."""

from typing import Annotated

import typer

from dalsegno.ops.cli.append_each import append_each
from dalsegno.ops.cli.failures import Refused
from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.settings import read_settings


def activate(
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Rules version")],
) -> None:
    """Append the marker to every partition, once every partition's owner knows the rules."""
    from dalsegno.ops.kafka.engines import claims
    from dalsegno.ops.kafka.in_force import rules_of
    from dalsegno.schemas.control import RulesChanged

    settings = read_settings()
    owners = claims(settings)
    found = read_in_force(settings, RulesChanged)
    for each in found:
        claim = owners.get(each.partition)
        if claim is None:
            raise Refused(f"partition {each.partition} has no owner: start an engine first")
        if version not in claim.rules_known:
            raise Refused(
                f"{claim.owner}, owner of partition {each.partition}, knows rules "
                f"{list(claim.rules_known)}, not {version}: upgrade it first"
            )
    behind = [each for each in found if rules_of(each) != version]
    append_each(
        settings,
        [
            RulesChanged(
                source="cli",
                partition=each.partition,
                number=each.next_number,
                rules_version=version,
            )
            for each in behind
        ],
    )
    print(f"rules {version}: appended to {len(behind)} of {len(found)} partition(s)")
