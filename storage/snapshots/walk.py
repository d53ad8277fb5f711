"""A chain read link by link: nothing of a link is believed before it is verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.storage.frame import DICTIONARY_BYTES_MAX
from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt
from dalsegno.storage.snapshots.link import (
    PAYLOAD_BYTES_MAX,
    Header,
    Link,
    LinkKind,
    Version,
    read_link,
)
from dalsegno.storage.snapshots.rebase import Rent, pay
from dalsegno.streams.core.context import Context, ContextError
from dalsegno.streams.core.context_masking import first_of
from dalsegno.streams.core.versions import move

EMPTY: Final[Mapping[int, int]] = MappingProxyType({})
_UNBOUNDED: Final = Policy(context_bytes_max=PAYLOAD_BYTES_MAX, inline_bytes_max=PAYLOAD_BYTES_MAX)
"""What was allowed when it was written is allowed when it is read."""


class Tail(msgspec.Struct, frozen=True, gc=False):
    """What the next link of a chain needs to know of the links before it."""

    digest: bytes
    run_version: int
    dictionary: bytes
    rent: Rent
    ratio: float
    """Stored over packed bytes of the last base: what a full snapshot would take, by its size."""
    offset: int = -1
    """Of the event that made the version, where the link says so."""
    settled: Mapping[int, int] = EMPTY


def after(tail: Tail | None, link: Link, payload: bytes, settled: Mapping[int, int]) -> Tail:
    """What the link after this one needs to know. `settled`: how steps stand behind it."""
    stored = len(link.stored)
    if tail is None:
        ratio = stored / max(1, len(payload))
        rent = Rent(stored)
        dictionary = payload
    else:
        ratio = tail.ratio
        estimate = max(1, round(link.header.context_bytes * ratio))
        rent = pay(tail.rent, stored, estimate)
        dictionary = tail.dictionary + payload
    header = link.header
    offset = header.versions[-1].offset if header.versions else -1
    dictionary = dictionary[-DICTIONARY_BYTES_MAX:]
    return Tail(link.digest, header.run_version, dictionary, rent, ratio, offset, settled)


def newest_base(run_id: str, links: Sequence[bytes], run_version: int | None = None) -> int:
    """Where the newest chain begins that can hold the answer; 0 if nothing says so."""
    for place in range(len(links) - 1, 0, -1):
        try:
            header = read_link(run_id, links[place]).header
        except SnapshotCorrupt:
            continue  # it holds no answer; who walks over it is told
        if header.kind is LinkKind.BASE and (
            run_version is None or header.run_version <= run_version
        ):
            return place
    return 0


class Found(NamedTuple):
    """A link that is whole. `context`, `settled` are those of its version until the next one is
    asked for.
    """

    link: Link
    tail: Tail
    context: Context
    place: int
    payload: bytes
    settled: dict[int, int]


def walk(
    run_id: str, links: Sequence[bytes], run_version: int | None = None
) -> Iterator[Found | SnapshotCorrupt]:
    """Each link that is whole, in order, up to a version; a fault for each that is not.

    Behind a fault nothing can be read until the next base. What failed has changed nothing of the
    context before it.
    """
    tail: Tail | None = None
    context: Context | None = None
    settled: dict[int, int] = {}
    for place, data in enumerate(links):
        try:
            link = read_link(run_id, data)
            upto = link.header.versions
            if run_version is not None and link.header.run_version > run_version:
                upto = tuple(each for each in upto if each.number <= run_version)
                if not upto:
                    return
            payload, context = _apply(link, tail, context, upto)
        except SnapshotCorrupt as fault:
            tail, context = None, None
            yield fault
            continue
        base = link.header.kind is LinkKind.BASE
        if base:
            settled = {}
        for version in upto:
            move(settled, version.settled)
        tail = after(None if base else tail, link, payload, dict(settled))
        yield Found(link, tail, context, place, payload, settled)


def _apply(
    link: Link, tail: Tail | None, context: Context | None, upto: tuple[Version, ...]
) -> tuple[bytes, Context]:
    """The payload, and the context behind it: at the last version of `upto`, where it says any."""
    header = link.header
    run_id = header.run_id
    if header.kind is not LinkKind.BASE:
        if tail is None:
            raise SnapshotCorrupt(run_id, Fault.ORDER, "the links that it needs are not there")
        if header.previous != tail.digest or header.run_version <= tail.run_version:
            raise SnapshotCorrupt(run_id, Fault.ORDER, "it does not follow the link before it")
    payload = link.payload(tail.dictionary if tail is not None else b"")
    try:
        if header.kind is LinkKind.DELTA:
            assert context is not None, "there is a tail"
            part = len(upto) < len(header.versions)
            operations = first_of(payload, upto[-1].operations) if part else payload
            change = context.apply(operations, _UNBOUNDED)
            if not part:
                _check_size(header, change.size_bytes)
            change.adopt()
        else:
            context = Context.create(payload, _UNBOUNDED)
            _check_size(header, context.size_bytes)
    except (ContextError, msgspec.MsgspecError) as error:
        raise SnapshotCorrupt(run_id, Fault.CONTENT, str(error)) from error
    return payload, context


def _check_size(header: Header, found_bytes: int) -> None:
    if found_bytes != header.context_bytes:
        detail = f"a context of {found_bytes} bytes, its header says {header.context_bytes}"
        raise SnapshotCorrupt(header.run_id, Fault.CONTENT, detail)
