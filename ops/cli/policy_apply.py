"""`dalsegno policy apply`: change the settings in the log that decide about runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.append_each import append_each
from dalsegno.ops.cli.failures import Refused, UsageFault
from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_table
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.schemas.control import Policy
    from dalsegno.streams.engine.settings import EngineSettings


def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="TOML or JSON; what it leaves out stays as it is")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
) -> None:
    """Append the policy of a file to every partition."""
    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.ops.policy_file import PolicyFileError, changes, load_policy
    from dalsegno.schemas.control import PolicySet

    settings = read_settings()
    found = read_in_force(settings, PolicySet)
    try:
        wanted = {each.partition: load_policy(file, policy_of(each)) for each in found}
    except PolicyFileError as error:
        raise UsageFault(str(error)) from error
    for policy in dict.fromkeys(wanted.values()):
        _check(settings, policy)
    rows = [
        (each.partition, *change)
        for each in found
        for change in changes(policy_of(each), wanted[each.partition])
    ]
    changed = [each for each in found if any(row[0] == each.partition for row in rows)]
    print_table(("partition", "setting", "before", "after"), rows, "nothing changes")
    if not changed or not (yes or typer.confirm("append this to the log?")):
        return
    # First: signed by what is in force until now, and what fails here is seen as a change again.
    _to_faults(settings, {each.partition: wanted[each.partition] for each in changed})
    append_each(
        settings,
        [
            PolicySet(
                source="cli",
                partition=each.partition,
                number=each.next_number,
                policy=wanted[each.partition],
            )
            for each in changed
        ],
    )
    print(f"appended to {len(changed)} partition(s)")


def _to_faults(settings: EngineSettings, wanted: dict[int, Policy]) -> None:
    """Fault points go by the same policy. Their topic has the same partitions."""
    from dalsegno.ops.kafka.fault_points import append_to_faults
    from dalsegno.schemas.control import PolicySet

    now_ms = time.time_ns() // 1_000_000
    for partition, policy in wanted.items():
        append_to_faults(
            settings,
            PolicySet(source="cli", partition=partition, number=now_ms, policy=policy),
        )


def _check(settings: EngineSettings, policy: Policy) -> None:
    """A policy may name only what exists: a queue's topic, a key, a schema come first."""
    from dalsegno.ops.kafka.reader import Reader, ReadError
    from dalsegno.schemas.registry import registry
    from dalsegno.streams.core.controls import policy_fault
    from dalsegno.streams.engine.checks import dispatch_fault
    from dalsegno.streams.engine.topics_admin import TopicAdmin

    if fault := policy_fault(policy):
        raise Refused(f"{fault}: no policy can have that, see `dalsegno policy show`")
    missing = [key for key in policy.mac_keys if key not in settings.keyring]
    if missing:
        raise Refused(
            f"MAC key {missing[0]!r} is not in DALSEGNO_MAC_KEYS: add it everywhere first"
        )
    if policy.mac_keys and settings.signing_key not in policy.mac_keys:
        raise Refused(
            f"MAC key {settings.signing_key!r} is the first in DALSEGNO_MAC_KEYS and not in the "
            "list: what engines sign with it until they have read this policy would be put aside; "
            "put a key of the list first everywhere, restart the engines, then repeat"
        )
    named = (*policy.schemas, *(each.fingerprint for each in policy.registry_ids))
    unknown = [s.hex() for s in named if s not in registry().by_fingerprint]
    if unknown:
        raise Refused(f"schema {unknown[0]} is unknown to this code: upgrade first")
    lacking = [each for each in _own_schemas() if policy.schemas and each[1] not in policy.schemas]
    if lacking:
        raise Refused(
            f"the service itself writes {lacking[0][0]}, and schema {lacking[0][1].hex()} is not "
            "in the list: nothing of that kind would be taken any more"
        )
    with Reader(settings) as reader:
        wanted = reader.partitions(settings.topics.events)
        for queue in policy.queues:
            try:
                found = reader.partitions(settings.topics.queue(queue))
            except ReadError as error:
                raise Refused(
                    f"queue {queue!r} has no topic: run `dalsegno topics create --queue {queue}`"
                ) from error
            if found != wanted:
                raise Refused(f"queue {queue!r} has {found} partitions, the events {wanted}")
    if fault := dispatch_fault(settings.topics, TopicAdmin(settings).facts(), policy):
        raise Refused(fault)


def _own_schemas() -> list[tuple[str, bytes]]:
    """Kind and newest fingerprint of all that engines and operators append."""
    from dalsegno.schemas.control import ControlEvent
    from dalsegno.schemas.kinds import KINDS
    from dalsegno.schemas.outputs import FaultReport
    from dalsegno.schemas.registry import registry

    own = [name for name, kind in KINDS.items() if issubclass(kind, ControlEvent | FaultReport)]
    return [(name, registry().newest(name).fingerprint) for name in own]
