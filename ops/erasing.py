"""Ask for an erasure, and tell what has become of it: a receipt in two phases."""

import time
from typing import NamedTuple

import msgspec

from dalsegno.ops.kafka.engines import EngineError, Engines
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas.control import ErasedFrom, ErasureRequested
from dalsegno.streams.core.tombstones import digest_of_id
from dalsegno.streams.engine.forgetting import Forgets, forgets, gone_by_ms
from dalsegno.streams.engine.log_ages import Looked
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.signing import Signer

_ASK_S = 0.25


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an erasure. Times are Unix ms, by the brokers' clock.

    `removed`: phase one, by store; empty until the owner has said so. `logs`: phase two, by topic.
    `gone_by_ms`: the last of all dates, those of large values included; None while a topic never
    forgets. It names no run.
    """

    run_digest: str
    erasure_id: str
    requested_by: str
    reason: str
    erased_at_ms: int
    was: str
    late: int
    confirmed: bool
    removed: tuple[tuple[str, int, str], ...]
    logs: tuple[Forgets, ...]
    promised_ms: int | None
    gone_by_ms: int | None


class _Stone(msgspec.Struct):
    """A tombstone as an engine shows it; see `Tombstone`."""

    erasure_id: str
    requested_by: str
    reason: str
    erased_ms: int
    last_ms: int
    late: int
    was: str
    number: int
    confirmed: tuple[ErasedFrom, ...]
    gone_by_ms: int


class Place(NamedTuple):
    """Where a run's events are: partition `number` of `partitions`."""

    number: int
    partitions: int


def request(settings: EngineSettings, place: Place, event: ErasureRequested) -> int:
    """Append the request under its MAC; its offset. Raises AppendError, NoKeyError."""
    writer = Writer(settings)
    signer = Signer(settings.topics.events, place.partitions, settings.keyring)
    record = signer.record(event, writer.key(place.number))
    return writer.append(record.topic, place.number, record.key, record.value, record.headers)


def undated(settings: EngineSettings, looked: Looked) -> list[Forgets]:
    """Topics that would never forget, with what to set."""
    found = forgets(settings.topics, looked.facts, 0, looked.broker)
    return [each for each in found if each.by_ms is None]


def receipt(
    settings: EngineSettings, engines: Engines, place: Place, run_id: str, looked: Looked
) -> Receipt | None:
    """The receipt as of now; None when the run was not erased. Raises EngineError."""
    digest = digest_of_id(run_id)
    found = engines.erasure(digest.hex(), place.number)
    if found is None:
        return None
    stone = msgspec.convert(found, _Stone)
    logs = forgets(settings.topics, looked.facts, stone.last_ms, looked.broker)
    by_ms = gone_by_ms(logs)
    return Receipt(
        run_digest=digest.hex(),
        erasure_id=stone.erasure_id,
        requested_by=stone.requested_by,
        reason=stone.reason,
        erased_at_ms=stone.erased_ms,
        was=stone.was,
        late=stone.late,
        confirmed=stone.number >= 0,
        removed=tuple((each.store, each.removed, each.detail) for each in stone.confirmed),
        logs=tuple(logs),
        promised_ms=stone.gone_by_ms or None,
        gone_by_ms=None if by_ms is None else max(by_ms, stone.gone_by_ms),
    )


def await_receipt(
    settings: EngineSettings, place: Place, run_id: str, looked: Looked, wait_s: float
) -> Receipt | None:
    """Waits until the owner has removed the run from every store, or the time is over: then what
    is known. Raises EngineError when no engine answers by then.
    """
    until_s = time.monotonic() + wait_s
    while True:
        found, failed = None, None
        try:
            found = receipt(settings, Engines.find(settings), place, run_id, looked)
        except EngineError as error:
            failed = error
        if found is not None and found.confirmed:
            return found
        if time.monotonic() >= until_s:
            if failed is not None:
                raise failed
            return found
        time.sleep(_ASK_S)
