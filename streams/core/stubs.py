"""Runs that are not there: early events, starts that were refused, runs that have ended."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from dalsegno.schemas import events as contract
from dalsegno.schemas.control import DecisionMade, Policy, RunControl, StallSuspected
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectConfirmed,
    EffectIntended,
    RunCancelled,
    RunEvent,
    StepCompleted,
)
from dalsegno.schemas.package import EffectFate, EffectLine
from dalsegno.streams.core.actions import Escalate
from dalsegno.streams.core.bounds import words
from dalsegno.streams.core.effects import effect_mark
from dalsegno.streams.core.moment import (
    Moment,
    Ruling,
    duplicate,
    refused,
    superseded,
)
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.notice import notice
from dalsegno.streams.core.people.decisions import first_heard
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.runstate import UNKNOWN_MAX, Stub, Waiting

# Effects intended after the end that a stub tells apart; beyond it each report asks a person again.
_STRAYS_MAX = 16
_BUILT_IN: Final = Policy()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.decode


def pack_waiting_record(record: Record) -> Waiting:
    """A record as it waits: enough to apply it later, and to dead-letter it as it came."""
    event = record.event
    return Waiting(
        record.offset,
        record.at_ms,
        type(event).__name__,
        _encode(event),
        record.key,
        record.value,
        record.headers,
    )


# Control kinds about a run that can wait for it.
MayWait = StallSuspected | DecisionMade
_CONTROLS: Final[dict[str, type[MayWait]]] = {
    kind.__name__: kind for kind in (StallSuspected, DecisionMade)
}


def unpack_event(held: Waiting) -> RunEvent | MayWait:
    """The event of a record that waited."""
    kind: type[RunEvent | MayWait] = _CONTROLS.get(held.kind) or getattr(contract, held.kind)
    return _decode(held.event, type=kind)


def room_to_wait(waiting: list[Waiting] | None, record: Record, policy: Policy) -> bool:
    """Whether one more record may wait for a start: both bounds of the policy, headers included."""
    return _fits(waiting or [], record, policy.early_events_max, policy.early_bytes_max)


def room_to_wait_for_run(waiting: list[Waiting] | None, record: Record, policy: Policy) -> bool:
    """Whether one more record may wait for a run that has started and is quarantined, or on its
    way from the archive. The first may, whatever its size; a bound of 0 is about early events
    alone, so the built-in one stands in for it.
    """
    events_max = policy.early_events_max or _BUILT_IN.early_events_max
    bytes_max = policy.early_bytes_max or _BUILT_IN.early_bytes_max
    return not waiting or _fits(waiting, record, events_max, bytes_max)


def _fits(held: list[Waiting], record: Record, events_max: int, bytes_max: int) -> bool:
    size = sum(map(_bytes_of, held)) + _bytes_of(record)
    return len(held) < events_max and size <= bytes_max


def _bytes_of(record: Record | Waiting) -> int:
    size = len(record.key) + len(record.value)
    for name, value in record.headers:
        size += len(name) + len(value)
    return size


def after_end(now: Moment, stub: Stub, event: RunEvent) -> tuple[Ruling, bool]:
    """What an event of a run that has ended comes to, and whether the stub has changed."""
    head = stub.head
    if isinstance(event, EffectIntended):
        return _stray(now, stub, event)
    if isinstance(event, EffectConfirmed):
        return _resolved(stub, event)
    if isinstance(event, StepCompleted) and (event.step, event.epoch) == (
        head.last_step,
        head.last_epoch,
    ):
        return duplicate(), False
    if isinstance(event, AttemptEvent):
        return superseded("run_ended"), False
    if isinstance(event, RunCancelled) and f"RunCancelled:{event.request_id}" == head.request_id:
        return duplicate(answer=True), False
    return refused("run_ended", f"the run has ended: {head.state}"), False


def control_after_end(stub: Stub, event: RunControl) -> Ruling:
    """Why a control event about a run that is not live is refused."""
    head = stub.head
    if head.state is None:
        return refused("unknown_run")
    if isinstance(event, DecisionMade):
        number = event.escalation_id.rpartition("#")[2]
        for earlier in head.decided:
            if str(earlier.number) == number:
                return refused("already_decided", first_heard(earlier))
        late = f"the run has ended at {head.ended_ms} ms: {head.state} ({head.reason})"
        return refused("run_ended", f"too late: {late}")
    return refused("run_ended")


def _resolved(stub: Stub, event: EffectConfirmed) -> tuple[Ruling, bool]:
    """What was unknown at the end, or intended after it, is known from now on."""
    head = stub.head
    mark = effect_mark(event.step, event.effect, event.occurrence)
    if mark not in head.unknown:
        return superseded("run_ended"), False
    stub.head = msgspec.structs.replace(
        head,
        unknown=tuple(other for other in head.unknown if other != mark),
        effects_unknown=head.effects_unknown - 1,
    )
    return superseded("run_ended"), True


def _line(event: EffectIntended) -> EffectLine:
    return EffectLine(
        step=words(event.step),
        effect=words(event.effect),
        occurrence=event.occurrence,
        key=event.key[:ID_CHARS_MAX],
        fate=EffectFate.UNKNOWN,
    )


def _stray(now: Moment, stub: Stub, event: EffectIntended) -> tuple[Ruling, bool]:
    """Something may be done to the outside world for a run that is over: a person is told."""
    head = stub.head
    name = f"{event.step}/{event.effect}/{event.occurrence}"
    if len(name) > ID_CHARS_MAX:
        name = sha256(name.encode()).hexdigest()
    if name in head.strays:
        return superseded("run_ended"), False
    unknown, mark = head.unknown, effect_mark(event.step, event.effect, event.occurrence)
    fresh = mark not in unknown
    if fresh and len(unknown) < UNKNOWN_MAX:
        unknown = (*unknown, mark)
    stub.head = msgspec.structs.replace(
        head,
        strays=(*head.strays, name)[-_STRAYS_MAX:],
        unknown=unknown,
        effects_unknown=head.effects_unknown + fresh,
    )
    escalation = notice(
        now,
        stub.id,
        head,
        mark=f"after:{name}",
        reason="effect_after_end",
        message=f"after the run had ended ({head.state}), effect {event.effect!r} was intended",
        question=f"Nothing is asked: an effect was intended after run {stub.id} had ended.",
        silence_text="Nothing: no answer is waited for.",
        became="ended",
        step=words(event.step),
        epoch=event.epoch,
        effect_lines=(_line(event),),
    )
    now.outbox.put("escalations", Escalate(escalation))
    return superseded("run_ended"), True
