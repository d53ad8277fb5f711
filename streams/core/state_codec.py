"""Parts of the state as bytes: what a checkpoint writes to the changelog and a restore reads.

| key | part |
|---|---|
| `00 "partition"` | position, clocks, counters, policy, numbers of monotone kinds |
| `"r" run` | header of a run, a stub, or a run in the archive: a fixed prefix, then MessagePack |
| `"s" run 00 page` | rows of 16 steps (page: uint16 big-endian) |
| `"c" run 00 tail` | context, by the context's own parts |
| `"j" run 00 step page` | 4 effects of a step (uint16, uint16) |
| `"v" run 00 step` | save of a step (uint16) |
| `"o" run 00 page` | 32 one-shot ids |
| `"w" run 00` | events that wait |
| `"p" digest` | a plan |
| `"x" digest` | an erased run's tombstone, by the SHA-256 of its id |

The prefix of a header says what a restore must know without reading on: kind, next deadlines on
both clocks, attempts in flight, waiting events, the plan's digest. The bytes are a function of the
state alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from operator import is_not
from typing import Final

import msgspec

from dalsegno.streams.core import tags
from dalsegno.streams.core.cold import Cold, ColdHead
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.deadlines import rebuild
from dalsegno.streams.core.plan_store import PlanEntry
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import (
    GROUPS,
    PAGE_STEPS,
    Effect,
    Refusal,
    Run,
    RunHead,
    StepJournal,
    Stub,
    StubHead,
    Waiting,
    aloft,
    in_lines,
)

FORMAT: Final = 1
# An effect may hold a result and an undo input of one message each: a page has to stay well below
# what the changelog takes as one record.
PAGE_EFFECTS: Final = 4
PAGE_IDS: Final = 32

KIND_RUN: Final = 1
KIND_STUB: Final = 2
KIND_COLD: Final = 3
# Set on the kind of a run that has steps in lines: a restore puts them there.
_HELD: Final = 0x10
# Set on the kind of a run in the archive that is to come back.
_WANTED: Final = 0x20
_NO_PLAN: Final = bytes(32)
_PREFIX: Final = struct.Struct(">BBqqII32s")
PREFIX_BYTES: Final = _PREFIX.size
_U16: Final = struct.Struct(">H")
_U16_2: Final = struct.Struct(">HH")

_encode = msgspec.msgpack.Encoder().encode
_run_head = msgspec.msgpack.Decoder(RunHead)
_stub_head = msgspec.msgpack.Decoder(StubHead)
_cold_head = msgspec.msgpack.Decoder(ColdHead)
_page = msgspec.msgpack.Decoder(list[StepRow | None])
_effects = msgspec.msgpack.Decoder(list[Effect])
# An id alone was accepted; one that was refused has its reason and detail beside it.
_ids = msgspec.msgpack.Decoder(list[str | tuple[str, str, str]])
_waits = msgspec.msgpack.Decoder(list[Waiting])


class StateCorrupt(Exception):  # noqa: N818 - names what is found
    """A part of the state cannot be read. The partition stops: nothing is guessed."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """What a header's prefix says."""

    kind: int
    held: bool
    wanted: bool
    log_due: int
    live_due: int
    flying: int
    waiting: int
    plan: bytes


def read_prefix(data: bytes) -> Prefix:
    """Raises `StateCorrupt`."""
    if len(data) < _PREFIX.size:
        raise StateCorrupt(f"a header of {len(data)} bytes")
    form, kind, log_due, live_due, flying, waiting, plan = _PREFIX.unpack_from(data)
    if form != FORMAT:
        raise StateCorrupt(f"a header of format {form}; this code reads {FORMAT}")
    return Prefix(
        kind & ~(_HELD | _WANTED),
        bool(kind & _HELD),
        bool(kind & _WANTED),
        log_due,
        live_due,
        flying,
        waiting,
        b"" if plan == _NO_PLAN else plan,
    )


def read_head(run_id: str, header: bytes) -> RunHead:
    """The header of a run, without the rest of it. Raises `StateCorrupt`."""
    try:
        head = _run_head.decode(memoryview(header)[_PREFIX.size :])
    except msgspec.MsgspecError as error:
        raise StateCorrupt(f"run {run_id!a}: {error}") from error
    # A header of the time before steps could be held counts one group less.
    head.tally.extend([0] * (GROUPS - len(head.tally)))
    return head


def header_key(run_id: str) -> bytes:
    """Key of a run's header part."""
    return b"r" + run_id.encode()


def run_of(key: bytes) -> tuple[str, bytes]:
    """The run id and the tail of a part's key."""
    kind = key[:1]
    if kind == b"r":
        return key[1:].decode(), b""
    name, _, tail = key[1:].partition(b"\0")
    return name.decode(), tail


def pack_run(run: Run) -> bytes:
    """The header part of a run."""
    return _PREFIX.pack(
        FORMAT,
        KIND_RUN | (_HELD if in_lines(run.head) else 0),
        run.log_due,
        run.live_due,
        aloft(run.head),
        len(run.waiting or ()),
        run.entry.plan.digest,
    ) + _encode(run.head)


def pack_stub(stub: Stub) -> bytes:
    """The header part of a stub."""
    head = stub.head
    return _PREFIX.pack(
        FORMAT,
        KIND_STUB,
        stub.log_due,
        stub.live_due,
        0,
        len(stub.waiting or ()),
        head.plan_digest or _NO_PLAN,
    ) + _encode(head)


def pack_cold(cold: Cold) -> bytes:
    """The header part of a run in the archive."""
    head = cold.head
    return _PREFIX.pack(
        FORMAT,
        KIND_COLD | (_WANTED if head.wanted_ms else 0),
        cold.log_due,
        cold.live_due,
        0,
        len(cold.waiting or ()),
        head.plan_digest,
    ) + _encode(head)


def pack_page(run: Run, page: int) -> bytes | None:
    """Rows of one page; a step that nothing has touched is nil, and nil at the end is left out.

    None when nothing on the page has been touched.
    """
    first = page * PAGE_STEPS
    fresh = run.entry.rows[first : first + PAGE_STEPS]
    rows: list[StepRow | None] = []
    used = 0
    for place, row in enumerate(run.rows[first : first + PAGE_STEPS]):
        if row is fresh[place] or row == fresh[place]:
            rows.append(None)
        else:
            rows.append(row)
            used = place + 1
    return _encode(rows[:used]) if used else None


def pack_effects(journal: StepJournal, page: int) -> bytes:
    """One page of a step's journal."""
    return _encode(journal.effects[page * PAGE_EFFECTS : (page + 1) * PAGE_EFFECTS])


def pack_ids(run: Run, page: int) -> bytes | None:
    """One page of one-shot ids, None when they are forgotten."""
    first = page * PAGE_IDS - run.head.seen_from
    if first < 0 or run.seen is None:
        return None
    kept = islice(run.seen.items(), first, first + PAGE_IDS)
    return _encode([name if said is None else (name, *said) for name, said in kept])


def pack_waiting(waiting: list[Waiting]) -> bytes:
    """The events that wait."""
    return _encode(waiting)


def _tags_of(run: Run) -> Iterator[int]:
    """Tags of the parts that a run may have, without the context's, in order of their keys."""
    for step, journal in sorted((run.journal or {}).items()):
        for page in range(-(-len(journal.effects) // PAGE_EFFECTS)):
            yield tags.EFFECTS << tags.SHIFT | step << 16 | page
    for first in range(0, len(run.seen or ()), PAGE_IDS):
        yield tags.IDS << tags.SHIFT | (run.head.seen_from + first) // PAGE_IDS
    rows, fresh = run.rows, run.entry.rows
    for page in range(-(-len(rows) // PAGE_STEPS)):
        first = page * PAGE_STEPS
        if any(map(is_not, rows[first : first + PAGE_STEPS], fresh[first : first + PAGE_STEPS])):
            yield tags.PAGE << tags.SHIFT | page
    for step in sorted(run.saves or ()):
        yield tags.SAVE << tags.SHIFT | step
    if run.waiting:
        yield tags.ALL_WAITING


def all_parts(run: Run) -> list[tuple[bytes, bytes]]:
    """Every part of a run but its header, in order of their keys."""
    name = b"c" + run.id.encode() + b"\0"
    parts = [(name + tail, value) for tail, value in run.context.parts()]
    for tag in _tags_of(run):
        key, value = run_part(run, tag)
        if value is not None:
            parts.append((key, value))
    return parts


def part_keys(run: Run) -> list[bytes]:
    """Keys of all parts of a run but its header: those there are, those that have just gone."""
    name = b"c" + run.id.encode() + b"\0"
    keys = [name + tail for tail in run.context.part_keys()]
    return keys + [part_key(run.id, tag) for tag in _tags_of(run)]


def part_key(run_id: str, tag: int) -> bytes:
    """The key of the part that a tag stands for (see `tags.py`; not the context's)."""
    name = run_id.encode() + b"\0"
    kind, number = tag >> tags.SHIFT, tag & tags.MASK
    if kind == tags.PAGE:
        return b"s" + name + _U16.pack(number)
    if kind == tags.EFFECTS:
        return b"j" + name + _U16_2.pack(number >> 16, number & 0xFFFF)
    if kind == tags.SAVE:
        return b"v" + name + _U16.pack(number)
    if kind == tags.IDS:
        return b"o" + name + _U16.pack(number)
    assert kind == tags.WAITING, f"no part has the tag {tag}"
    return b"w" + name


def run_part(run: Run, tag: int) -> tuple[bytes, bytes | None]:
    """The part that a tag stands for, None when it is empty now."""
    kind, number = tag >> tags.SHIFT, tag & tags.MASK
    value: bytes | None
    if kind == tags.PAGE:
        value = pack_page(run, number)
    elif kind == tags.EFFECTS:
        journal = (run.journal or {}).get(number >> 16)
        value = None if journal is None else pack_effects(journal, number & 0xFFFF)
    elif kind == tags.SAVE:
        value = (run.saves or {}).get(number)
    elif kind == tags.IDS:
        value = pack_ids(run, number)
    else:
        value = pack_waiting(run.waiting) if run.waiting else None
    return part_key(run.id, tag), value


def unpack_run(
    run_id: str, header: bytes, parts: list[tuple[bytes, bytes]], entry: PlanEntry
) -> Run:
    """A live run from its parts. Raises `StateCorrupt`."""
    try:
        return _unpack_run(run_id, header, parts, entry)
    except (msgspec.MsgspecError, ValueError, struct.error) as error:
        raise StateCorrupt(f"run {run_id!a}: {error}") from error


def _unpack_run(
    run_id: str, header: bytes, parts: list[tuple[bytes, bytes]], entry: PlanEntry
) -> Run:
    head = read_head(run_id, header)
    rows = list(entry.rows)
    context: list[tuple[bytes, bytes]] = []
    journal: dict[int, dict[int, list[Effect]]] = {}
    run = Run(run_id, head, entry, rows, Context.empty())
    seen: dict[int, list[str | tuple[str, str, str]]] = {}
    for key, value in parts:
        kind, tail = key[:1], run_of(key)[1]
        if kind == b"s":
            first = _U16.unpack(tail)[0] * PAGE_STEPS
            for place, row in enumerate(_page.decode(value), first):
                if row is not None:
                    rows[place] = row
        elif kind == b"c":
            context.append((tail, value))
        elif kind == b"j":
            step, page = _U16_2.unpack(tail)
            journal.setdefault(step, {})[page] = _effects.decode(value)
        elif kind == b"o":
            seen[_U16.unpack(tail)[0]] = _ids.decode(value)
        elif kind == b"v":
            if run.saves is None:
                run.saves = {}
            run.saves[_U16.unpack(tail)[0]] = value
        elif kind == b"w":
            run.waiting = _waits.decode(value)
        else:
            raise StateCorrupt(f"run {run_id!a} has a part of kind {kind!a}")
    run.context = Context.load(context)
    if journal:
        run.journal = {
            step: StepJournal([e for _, page in sorted(pages.items()) for e in page])
            for step, pages in journal.items()
        }
    if seen:
        run.seen = {
            name: said for _, page in sorted(seen.items()) for name, said in map(_request, page)
        }
    run.kept = True
    rebuild(run)
    return run


def facts_of(
    run_id: str, header: bytes, parts: list[tuple[bytes, bytes]]
) -> tuple[RunHead, dict[int, StepRow], Context]:
    """Of a live run, without its plan: header, rows that anything has touched, context.

    Raises `StateCorrupt`.
    """
    rows: dict[int, StepRow] = {}
    context: list[tuple[bytes, bytes]] = []
    try:
        head = _run_head.decode(memoryview(header)[_PREFIX.size :])
        for key, value in parts:
            tail = run_of(key)[1]
            if key[:1] == b"s":
                first = _U16.unpack(tail)[0] * PAGE_STEPS
                page = enumerate(_page.decode(value), first)
                rows.update((place, row) for place, row in page if row is not None)
            elif key[:1] == b"c":
                context.append((tail, value))
        return head, rows, Context.load(context)
    except (msgspec.MsgspecError, ValueError, struct.error) as error:
        raise StateCorrupt(f"run {run_id!a}: {error}") from error


def _request(item: str | tuple[str, str, str]) -> tuple[str, Refusal | None]:
    return (item, None) if isinstance(item, str) else (item[0], item[1:])


def unpack_stub(
    run_id: str, header: bytes, parts: list[tuple[bytes, bytes]], kind: int = KIND_STUB
) -> Stub | Cold:
    """What is left of a run, from its parts. Raises `StateCorrupt`."""
    head = memoryview(header)[_PREFIX.size :]
    stub: Stub | Cold
    try:
        if kind == KIND_COLD:
            stub = Cold(run_id, _cold_head.decode(head))
        else:
            stub = Stub(run_id, _stub_head.decode(head))
        for key, value in parts:
            if key[:1] != b"w":
                raise StateCorrupt(f"the stub of {run_id!a} has a part of kind {key[:1]!a}")
            stub.waiting = _waits.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateCorrupt(f"stub {run_id!a}: {error}") from error
    stub.kept = True
    return stub
