"""Control events of a partition: ticks, the policy, the rules."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import (
    ArchiveConfirmed,
    ClockTick,
    FaultPointChanged,
    PartitionControl,
    Policy,
    PolicySet,
    QuotaGranted,
    RecoveryFrozen,
    RecoveryReleased,
    RulesChanged,
)
from dalsegno.schemas.signing import PUBLIC_KEY_BYTES, key_id_fault
from dalsegno.streams.core.cold import DIGEST_BYTES, layout_of
from dalsegno.streams.core.moment import APPLIED, Moment, Ruling, duplicate, refused
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.people.rights import rights_of
from dalsegno.streams.core.people.targets import webhooks_fault
from dalsegno.streams.core.plan_checks import check_retry
from dalsegno.streams.core.plan_errors import PlanRefused

SEGMENT_CHARS_MAX: Final = 256
# Numbered here, and applied by the partition.
_ELSEWHERE: Final = (
    ClockTick,
    FaultPointChanged,
    QuotaGranted,
    RecoveryFrozen,
    RecoveryReleased,
)
# Rules of the fold that this code knows.
RULES_KNOWN: Final = (1,)


class RulesUnknown(Exception):  # noqa: N818 - the partition stops; nothing is refused or guessed
    """The log switches to rules that this code does not know. Start code that does."""


class Controls:
    """The settings that the log has set, each by a number that only grows."""

    def __init__(self, now: Moment, rules_known: tuple[int, ...]) -> None:
        self._now = now
        self._known = rules_known
        self.rules = 1
        self.numbers: dict[str, int] = {}

    def fresh(self, event: PartitionControl) -> bool:
        """Whether the event is about this partition and newer than the last of its kind."""
        return event.partition == self._now.partition and event.number > self.numbers.get(
            _subject(event), -1
        )

    def apply(self, event: PartitionControl) -> Ruling:
        """Applies a partition's control event. Raises `RulesUnknown`."""
        if event.partition != self._now.partition:
            return refused("wrong_partition", f"it belongs to partition {event.partition}")
        if not self.fresh(event):
            return duplicate("older_number")
        if isinstance(event, PolicySet):
            fault = policy_fault(event.policy)
            if fault:
                return refused("bad_policy", fault)
            self._now.policy = event.policy
            self._now.policy_number = event.number
        elif isinstance(event, RulesChanged):
            if event.rules_version not in self._known:
                raise RulesUnknown(
                    f"the log switches partition {event.partition} to rules {event.rules_version};"
                    f" this code knows {self._known}: start a newer one"
                )
            self.rules = event.rules_version
        elif isinstance(event, ArchiveConfirmed):
            if fault := self._archive_fault(event):
                return refused("bad_archive", fault)
        elif not isinstance(event, _ELSEWHERE):
            return refused(
                "not_supported_yet", f"{type(event).__name__} comes with a later release"
            )
        self.numbers[_subject(event)] = event.number
        return APPLIED

    @property
    def archived_to(self) -> int:
        """The first offset that no confirmed segment holds; 0 when nothing is archived."""
        return self.numbers.get(ArchiveConfirmed.__name__, -1) + 1

    def _archive_fault(self, event: ArchiveConfirmed) -> str:
        """Why a segment does not follow the last one; its number is its last offset."""
        if event.run_ids or event.run_digests:
            return _states_fault(event)
        if event.number != event.last_offset or not 0 <= event.first_offset <= event.last_offset:
            return f"offsets {event.first_offset} to {event.last_offset}, number {event.number}"
        known = self.archived_to
        if known and event.first_offset != known:
            return f"it begins at {event.first_offset}, the archive goes on at {known}"
        return ""


def _subject(event: PartitionControl) -> str:
    kind = type(event).__name__
    if isinstance(event, ArchiveConfirmed) and event.run_ids:
        return f"{kind}:runs"
    if isinstance(event, FaultPointChanged | QuotaGranted):
        return f"{kind}:{event.fault_point}"
    return kind


# States of runs in one segment: the fold looks at all of them while it applies one record.
STATES_MAX: Final = 1_000


def _states_fault(event: ArchiveConfirmed) -> str:
    """Why a segment of states of runs is none."""
    runs, digests = event.run_ids, event.run_digests
    if not len(set(runs)) == len(runs) == len(digests) <= STATES_MAX:
        return f"{len(runs)} runs and {len(digests)} digests, at most {STATES_MAX}, each run once"
    if not all(map(layout_of, digests)):
        return f"a digest has {DIGEST_BYTES} bytes, and the first is the number of a layout"
    if not 0 < len(event.segment) <= SEGMENT_CHARS_MAX:
        return f"the name of a segment has 1 to {SEGMENT_CHARS_MAX} characters"
    return ""


_POSITIVE: Final = (
    "start_limit_ms",
    "live_cap_ms",
    "verdict_age_ms",
    "stub_keep_ms",
    "person_wait_ms",
    "early_wait_ms",
    "steps_max",
    "context_bytes_max",
    "inline_bytes_max",
    "dispatch_bytes_max",
    "step_concurrency_max",
)
_LARGEST: Final = 10**13
# What the state's parts can number, and what one record of the changelog can hold.
_LARGEST_OF: Final = {
    "steps_max": 65_535,
    "effects_max": 262_144,
    "early_bytes_max": 4_194_304,
    "context_bytes_max": 12_582_912,
}


def policy_fault(policy: Policy) -> str:
    """Why a policy cannot be used, or an empty text."""
    if not policy.queues or len(set(policy.queues)) != len(policy.queues):
        return "queues: at least one, each once"
    for name in Policy.__struct_fields__:
        value = getattr(policy, name)
        most = _LARGEST_OF.get(name, _LARGEST)
        if isinstance(value, int) and not int(name in _POSITIVE) <= value <= most:
            return f"{name}: {value}"
    if fault := _keys_fault(policy) or webhooks_fault(policy.webhooks):
        return fault
    if policy.supplier_queue and policy.supplier_queue not in policy.queues:
        return f"supplier_queue: {policy.supplier_queue} is none of the queues"
    if policy.redispatch_max_ms < policy.redispatch_initial_ms:
        return "redispatch_max_ms is below redispatch_initial_ms"
    try:
        check_retry((), policy.retry_default)
    except PlanRefused as refused_for:
        return f"retry_default: {refused_for.detail}"
    return ""


def _keys_fault(policy: Policy) -> str:
    ids = [key.key_id for key in policy.decision_keys]
    if len(set(ids)) != len(ids):
        return "decision_keys: two have one id"
    for key in policy.decision_keys:
        if fault := key_id_fault(key.key_id):
            return f"decision_keys: {key.key_id[:80]!a}: {fault}"
        if len(key.public_key) != PUBLIC_KEY_BYTES:
            return f"decision_keys: {key.key_id!a} has {len(key.public_key)} bytes, no Ed25519 key"
        if not 0 < len(key.holder) <= ID_CHARS_MAX:
            return f"decision_keys: {key.key_id!a} has a holder of {len(key.holder)} characters"
        rights = rights_of(policy, key.holder)
        if rights is None or (key.flows, key.decisions) != (rights.flows, rights.decisions):
            return f"decision_keys: the keys of {key.holder[:80]!a} have different rights"
    return ""
