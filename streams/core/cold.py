"""A run whose state is in the archive: what stays of it, and what was archived as bytes.

What is archived of a run is all of its parts, in a layout (`layouts`). `pack_parts` makes one value
of them, the same on any machine; the layout's number and the value's SHA-256 are the digest that
the log, the stub and the archive agree on.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

from dalsegno.schemas.blob import packed_references
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.people.state import Ask
from dalsegno.streams.core.runstate import FLYING, HOLDING, NEVER, Run, RunHead, Waiting
from dalsegno.streams.core.step_table import WITH_PEOPLE

# A run comes back as one record of the events topic, which takes 1,048,588 bytes with all headers.
PARTS_BYTES_MAX: Final = 983_040
DIGEST_BYTES: Final = 33
# Open questions that a stub can show. A run has few, and shows all of them once it is back.
ASKS_MAX: Final = 32

_encode = msgspec.msgpack.Encoder().encode
_parts = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


class Asked(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An open question to a person, as a listing shows it. An empty `step`: about the run."""

    step: str
    number: int
    asked: str
    reason: str
    answer_by_ms: int
    reminded: int
    digest: bytes


class ColdHead(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """What is left of a run whose state is in the archive. Times are log time.

    `segment` has it, with `digest` (see `pack_parts`) and `size` bytes. `due_ms`: its next deadline
    (NEVER: none). `reply_to`: of who started it. `wanted_ms`: since when it is to come back, 0 when
    it is not; `wanted_by`: for which kind of event, or `timer`. `trouble`: why it could not, if
    that was said. `blobs`: the blob references in its parts, packed, one behind the other: while it
    is away it holds them all the same. The rest is for listings.
    """

    segment: str
    digest: bytes
    size: int
    archived_ms: int
    due_ms: int
    plan_digest: bytes
    start_digest: bytes
    flow: str
    flow_version: int
    state: RunState
    run_version: int
    started_ms: int
    updated_ms: int
    expires_ms: int
    reply_to: str = ""
    waiting_for: str = ""
    gate: str = ""
    paused_by: str = ""
    left: int = 0
    effects: int = 0
    effects_unknown: int = 0
    escalations: int = 0
    asked: tuple[Asked, ...] = ()
    context_schema: str = ""
    context_schema_version: int = 1
    wanted_ms: int = 0
    wanted_by: str = ""
    trouble: str = ""
    blobs: bytes = b""


class Cold:
    """A run in the archive. `waiting`: its events since it is wanted."""

    __slots__ = ("head", "id", "kept", "waiting")

    def __init__(self, run_id: str, head: ColdHead) -> None:
        self.id = run_id
        self.head = head
        self.waiting: list[Waiting] | None = None
        self.kept = False

    @property
    def log_due(self) -> int:
        """Its next deadline, NEVER once it is wanted: nothing is to be fired before it is back."""
        return NEVER if self.head.wanted_ms else self.head.due_ms

    @property
    def live_due(self) -> int:
        """Nothing of it is in flight."""
        return NEVER


def pack_parts(parts: Iterable[tuple[bytes, bytes]]) -> bytes:
    """All parts of a run as one value: a MessagePack array of [key, value], by key."""
    return _encode(sorted(parts))


def unpack_parts(data: bytes) -> list[tuple[bytes, bytes]]:
    """What `pack_parts` was given. Raises `msgspec.DecodeError`."""
    return _parts.decode(data)


def digest_of_parts(packed: bytes, layout: int) -> bytes:
    """What log, stub and archive agree on: the number of the layout, then the SHA-256."""
    return bytes((layout,)) + sha256(packed).digest()


def layout_of(digest: bytes) -> int:
    """Which layout a digest is over; 0 for what is no digest."""
    return digest[0] if len(digest) == DIGEST_BYTES else 0


def is_digest_of(digest: bytes, packed: bytes) -> bool:
    """Whether this is what a digest is over."""
    return digest == digest_of_parts(packed, layout_of(digest))


def may_rest(run: Run) -> bool:
    """Whether a run may leave for the archive."""
    return rests(run.head, run.live_due, run.waiting)


def rests(head: RunHead, live_due: int, waiting: list[Waiting] | None) -> bool:
    """Whether nothing of a run is in flight, stands in a line or waits to be applied. One that was
    damaged and now waits for a person may rest: what its repair knows is in its parts.
    """
    return (
        not any(head.tally[HOLDING:])
        and not head.tally[FLYING]
        and not head.recovering
        and not waiting
        and live_due == NEVER
    )


def cold_of(run: Run, segment: str, packed: bytes, digest: bytes, log_ms: int) -> Cold:
    """The stub of a run that leaves. `digest`: of what is `packed`."""
    head = run.head
    cold = Cold(
        run.id,
        ColdHead(
            segment=segment,
            digest=digest,
            size=len(packed),
            archived_ms=log_ms,
            due_ms=run.log_due,
            plan_digest=run.entry.plan.digest,
            start_digest=head.start_digest,
            flow=head.flow,
            flow_version=head.flow_version,
            state=head.state,
            run_version=head.run_version,
            started_ms=head.started_ms,
            updated_ms=head.updated_ms,
            expires_ms=0 if head.clock_stopped_ms else head.expires_ms,
            reply_to=head.reply_to,
            waiting_for=head.waiting_for,
            gate=head.gate,
            paused_by=head.paused_by,
            left=head.left,
            effects=head.effects,
            effects_unknown=head.effects_unknown,
            escalations=head.escalations,
            asked=_asked(run),
            context_schema=head.context_schema,
            context_schema_version=head.context_schema_version,
            blobs=b"".join(sorted(packed_references(packed))),
        ),
    )
    cold.kept = run.kept
    return cold


def open_asks(run: Run) -> list[tuple[str, Ask]]:
    """Open questions by step (empty: about the run), those about the run first."""
    people = run.head.people
    found: list[tuple[str, Ask | None]] = []
    if people is not None:
        found += [("", people.aside), ("", people.gate)]
    for place, row in enumerate(run.rows):
        if row.handled is not None and row.state in WITH_PEOPLE:
            found.append((run.entry.steps[place].name, row.handled.ask))
    return [(step, ask) for step, ask in found if ask is not None]


def _asked(run: Run) -> tuple[Asked, ...]:
    return tuple(
        Asked(step, ask.number, ask.asked, ask.reason, ask.answer_by_ms, ask.reminded, ask.digest)
        for step, ask in open_asks(run)[:ASKS_MAX]
    )
