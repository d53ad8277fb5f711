"""`dalsegno schemas register`: our schemas into a registry, and their ids into the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import Refused, UsageFault
from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_json
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.schemas.control import Policy, RegistryId
    from dalsegno.streams.engine.settings import EngineSettings


def register(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Register every schema of a run event, then list the ids in the policy of every partition.

    Needs DALSEGNO_REGISTRY_URL and the MAC key. May be repeated: what is there stays as it is.
    """
    settings = read_settings()
    ids = _register()
    done = _list(settings, ids)
    if json:
        print_json({"ids": {str(each.id): each.fingerprint.hex() for each in ids}, "done": done})
    else:
        print("\n".join([f"{len(ids)} schemas are registered", *done]))


def _register() -> tuple[RegistryId, ...]:
    import os

    from dalsegno.schemas.control import RegistryId
    from dalsegno.schemas.kinds import RUN_EVENTS
    from dalsegno.schemas.registry import registry
    from dalsegno.streams.client.schema_registry import RegistrySettings, SchemaRegistry

    found = RegistrySettings.from_env(os.environ)
    if not found.url:
        raise UsageFault("no registry is named: set DALSEGNO_REGISTRY_URL")
    there = SchemaRegistry(found)
    return tuple(
        RegistryId(id=there.register(version), fingerprint=version.fingerprint)
        for kind in RUN_EVENTS
        for version in registry().by_kind[kind.__name__]
    )


def _list(settings: EngineSettings, ids: tuple[RegistryId, ...]) -> list[str]:
    import msgspec

    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.ops.kafka.writer import Writer
    from dalsegno.schemas.control import PolicySet

    standing = read_in_force(settings, PolicySet)
    wider = {each.partition: _wider(policy_of(each), ids) for each in standing}
    done, writer = [], Writer(settings)
    for each in standing:
        new = wider[each.partition]
        if new:
            before = policy_of(each)
            policy = msgspec.structs.replace(before, registry_ids=(*before.registry_ids, *new))
            number, partition = each.next_number, each.partition
            writer.append_control(
                PolicySet(source="cli", partition=partition, number=number, policy=policy)
            )
            done.append(f"partition {partition}: the policy lists {len(new)} more ids")
    return done


def _wider(policy: Policy, ids: tuple[RegistryId, ...]) -> tuple[RegistryId, ...]:
    """Those that are not listed yet. Raises Refused for an id that stands for another schema."""
    listed = {each.id: each.fingerprint for each in policy.registry_ids}
    for each in ids:
        if listed.get(each.id, each.fingerprint) != each.fingerprint:
            raise Refused(
                f"the policy has id {each.id} for another schema: the log was written with another "
                "registry, and one log has one"
            )
    return tuple(each for each in ids if each.id not in listed)
