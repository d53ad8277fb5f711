"""`dalsegno keys new`: a key to sign decisions with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.append_each import append_each
from dalsegno.ops.cli.failures import Refused
from dalsegno.ops.cli.settings import read_settings
from dalsegno.schemas.control import DecisionType

if TYPE_CHECKING:
    from dalsegno.schemas.control import DecisionKey


def new(
    holder: Annotated[
        str, typer.Argument(metavar="HOLDER", help="Whose key it is: the name on the decisions")
    ],
    *,
    key_id: Annotated[str, typer.Option("--id", help="Default: the holder and a number")] = "",
    flow: Annotated[list[str] | None, typer.Option(help="Only about runs of this flow")] = None,
    decision: Annotated[
        list[DecisionType] | None, typer.Option(help="Only this decision; may be repeated")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File of the private half")] = None,
    allow: Annotated[
        bool, typer.Option("--allow", help="Also list it in the policy of every partition")
    ] = False,
) -> None:
    """Make a key and print what the policy has to list."""
    import msgspec

    from dalsegno.ops.people.keys import SigningKey

    name = key_id or f"{holder}-1"
    key = SigningKey.new(name, holder)
    path = out or Path(f"{name}.key.json")
    key.write(path)
    print(f"# the private half is in {path}: keep it to yourself")
    print("[[decision_keys]]")
    print(f'key_id = "{name}"')
    print(f'public_key = "{key.public.public_key.hex()}"')
    print(f'holder = "{holder}"')
    listed = msgspec.structs.replace(
        key.public, flows=tuple(flow or ()), decisions=tuple(decision or ())
    )
    for name, limits in (("flows", listed.flows), ("decisions", listed.decisions)):
        if limits:
            print(f"{name} = {json.dumps(limits)}")
    if allow:
        _allow(listed)


def _allow(key: DecisionKey) -> None:
    """Appends the policy with this key to every partition, or to none if one lists its id."""
    import msgspec

    from dalsegno.ops.cli.in_force import read_in_force
    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.schemas.control import PolicySet

    settings = read_settings()
    events = []
    for each in read_in_force(settings, PolicySet):
        policy = policy_of(each)
        if any(other.key_id == key.key_id for other in policy.decision_keys):
            raise Refused(f"partition {each.partition} lists a key {key.key_id!r} already")
        events.append(
            PolicySet(
                source="cli",
                partition=each.partition,
                number=each.next_number,
                policy=msgspec.structs.replace(policy, decision_keys=(*policy.decision_keys, key)),
            )
        )
    append_each(settings, events)
    print(f"# {key.holder} may decide from now on")
