"""What the outputs of a unit take on the wire, looked at before the unit is adopted.

What a unit puts out is bounded where it is made: see `bounds`. Should one be larger than its topic
takes all the same, then its unit counts as one that raised: it is taken back, its record is a dead
letter and its run waits for a person.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import Answer, Handoff, Transition
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output, Reply
from dalsegno.streams.core.bounds import entry_bytes
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, NAME_CHARS_MAX

TOPIC_BYTES_MAX: Final = 1_048_588
"""Kafka's default for `max.message.bytes`. No topic of the service takes less."""
DISPATCH_ROOM_BYTES: Final = TOPIC_BYTES_MAX - Policy().dispatch_bytes_max
"""What a handoff may take in its topic beside what the policy's `dispatch_bytes_max` counts."""
# Key, headers, framing of record and batch.
_OVERHEAD_BYTES: Final = 4_096
# Outputs that are surely below this are not measured: hardly any is not, and to measure is to
# encode. No limit is below it, since `DISPATCH_ROOM_BYTES` is not.
_SMALL_BYTES: Final = 65_536
# Names, numbers and framing of any output: a few texts of at most `ID_CHARS_MAX`.
_FRAME_BYTES: Final = 16_384
# A name in a list, with what stands beside it there.
_NAME_BYTES: Final = 4 * NAME_CHARS_MAX + 32
_CHAR_BYTES: Final = 4


class OutputTooLarge(Exception):  # noqa: N818 - names what is found
    """An output is larger than its topic takes: its unit must not be adopted."""

    def __init__(self, channel: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"an output to {channel} of {size_bytes} bytes, {limit_bytes} are allowed")


def raised(unit: str, error: Exception) -> tuple[str, str]:
    """Reason and detail of a dead letter for what a unit has raised."""
    if isinstance(error, OutputTooLarge):
        return "output_too_large", f"{unit}: {error}"[:DETAIL_CHARS_MAX]
    return "apply_raised", f"{unit}: {error!r}"[:DETAIL_CHARS_MAX]


def check_sizes(outputs: list[Output], first: int, policy: Policy) -> None:
    """Looks at the outputs from `first` on. Raises `OutputTooLarge`."""
    for output in islice(outputs, first, None):
        action = output.action
        if isinstance(action, Audit):
            if _audit_at_most(action.transition) > _SMALL_BYTES:
                _measure(action.channel, action.transition, TOPIC_BYTES_MAX)
        elif isinstance(action, Dispatch):
            if _dispatch_at_most(action.handoff) > _SMALL_BYTES:
                _measure(action.channel, action.handoff, _dispatch_limit(policy))
        elif isinstance(action, Reply):
            if _reply_at_most(action.answer) > _SMALL_BYTES:
                _measure(action.channel, action.answer, _dispatch_limit(policy))
        elif isinstance(action, Escalate):
            _measure(action.channel, action.escalation, TOPIC_BYTES_MAX)


def _dispatch_limit(policy: Policy) -> int:
    return policy.dispatch_bytes_max + DISPATCH_ROOM_BYTES


def _measure(channel: str, record: msgspec.Struct, topic_bytes: int) -> None:
    size, limit = len(encode(record)), topic_bytes - _OVERHEAD_BYTES
    if size > limit:
        raise OutputTooLarge(channel, size, limit)


def _audit_at_most(transition: Transition) -> int:
    chars = len(transition.detail) + len(transition.reason)
    chars += len(transition.step) + len(transition.actor)
    named = len(transition.changes) * _NAME_BYTES
    return _FRAME_BYTES + len(transition.diff) + named + _CHAR_BYTES * chars


def _dispatch_at_most(handoff: Handoff) -> int:
    size = _FRAME_BYTES + len(handoff.inputs) + len(handoff.wrote) + len(handoff.save or b"")
    size += _CHAR_BYTES * len(handoff.goal)
    size += (len(handoff.writes) + len(handoff.field_versions)) * _NAME_BYTES
    if handoff.effects or handoff.undo or handoff.form:
        size += sum(map(entry_bytes, handoff.effects))
        size += sum(entry_bytes(entry) + len(entry.undo_input) for entry in handoff.undo)
        # What a form says of a field is in the plan, however long that is: measured.
        size += len(handoff.form) * _SMALL_BYTES
    return size


def _reply_at_most(answer: Answer) -> int:
    chars = len(answer.reason) + len(answer.detail) + len(answer.step)
    return _FRAME_BYTES + len(answer.context) + _CHAR_BYTES * chars
