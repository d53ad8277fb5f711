"""Chains of snapshots: written link by link, read back to the newest link that is whole.

A delta's dictionary is what the chain's payloads end with, so a link can be read only behind all
links since its base. If one is damaged, the ones before it still are: the newest of them is the
snapshot, and the log is folded again from its version on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.storage.frame import DICTIONARY_BYTES_MAX, Frame, store
from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt
from dalsegno.storage.snapshots.link import (
    PAYLOAD_BYTES_MAX,
    Header,
    Link,
    LinkKind,
    read_link,
    write_link,
)
from dalsegno.storage.snapshots.rebase import Rent, base_due, pay
from dalsegno.streams.core.context import Context, ContextError

WHOLE_SHARE: Final = 0.25
"""Operations that take more than this share of the context may be dearer than the context."""
_UNBOUNDED: Final = Policy(context_bytes_max=PAYLOAD_BYTES_MAX, inline_bytes_max=PAYLOAD_BYTES_MAX)
"""What was allowed when it was written is allowed when it is read."""


class About(msgspec.Struct, frozen=True, gc=False):
    """What a link says besides the context; see `Header`."""

    step: str
    run_version: int
    plan_digest: bytes
    schema: str
    schema_version: int
    at_ms: int
    dependencies: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A context at one version of its run. `context` is packed; `place` the link's in its chain.

    `faults`: what was passed over to get it.
    """

    header: Header
    context: bytes
    place: int
    faults: tuple[SnapshotCorrupt, ...] = ()


class _Tail(msgspec.Struct, frozen=True, gc=False):
    """What the next link of a chain needs to know of the links before it."""

    digest: bytes
    run_version: int
    dictionary: bytes
    rent: Rent
    ratio: float
    """Stored over packed bytes of the last base: what a full snapshot would take, by its size."""


class ChainWriter:
    """Writes the links of one run, in the order of its versions."""

    def __init__(self, run_id: str, tail: _Tail | None = None) -> None:
        self._run_id = run_id
        self._tail = tail

    @classmethod
    def resume(cls, run_id: str, links: Sequence[bytes]) -> ChainWriter:
        """Goes on behind the newest link that is whole; with a new base behind a damaged one."""
        tail = None
        for found in _walk(run_id, links):
            tail = None if isinstance(found, SnapshotCorrupt) else found.tail
        return cls(run_id, tail)

    def add(
        self,
        about: About,
        context_bytes: int,
        context: Callable[[], bytes],
        operations: bytes | None,
    ) -> bytes:
        """The next link. `context` gives the packed context and is asked only where it is needed;
        `operations`, packed, lead to it from the context of the last link, None if nobody knows.

        Raises `ValueError` if the version does not grow.
        """
        tail = self._tail
        if tail is not None and about.run_version <= tail.run_version:
            raise ValueError(
                f"run {self._run_id!a}: version {about.run_version} after {tail.run_version}"
            )
        if tail is None or operations is None:
            return self._base(about, context(), context_bytes)
        kind, payload = LinkKind.DELTA, operations
        frame = store(operations, tail.dictionary)
        if len(operations) > WHOLE_SHARE * context_bytes:
            whole = context()
            other = store(whole, tail.dictionary)
            if len(other.data) < len(frame.data):
                kind, payload, frame = LinkKind.WHOLE, whole, other
        estimate = max(1, round(context_bytes * tail.ratio))
        if base_due(tail.rent, len(frame.data), estimate):
            return self._base(about, context(), context_bytes)
        return self._put(about, kind, payload, frame, context_bytes)

    def again(self, link: Link, payload: bytes, context: Callable[[], bytes]) -> bytes:
        """A link of another chain, with its kind, behind the last one here; the first is a base."""
        header = link.header
        if self._tail is None or header.kind is LinkKind.BASE:
            return self._base(_about(header), context(), header.context_bytes)
        frame = store(payload, self._tail.dictionary)
        return self._put(_about(header), header.kind, payload, frame, header.context_bytes)

    def _base(self, about: About, context: bytes, context_bytes: int) -> bytes:
        return self._put(about, LinkKind.BASE, context, store(context), context_bytes)

    def _put(
        self, about: About, kind: LinkKind, payload: bytes, frame: Frame, context_bytes: int
    ) -> bytes:
        tail = None if kind is LinkKind.BASE else self._tail
        header = Header(
            kind=kind,
            run_id=self._run_id,
            step=about.step,
            run_version=about.run_version,
            plan_digest=about.plan_digest,
            schema=about.schema,
            schema_version=about.schema_version,
            dependencies=about.dependencies,
            at_ms=about.at_ms,
            context_bytes=context_bytes,
            payload_bytes=0,
            stored_bytes=0,
            previous=tail.digest if tail is not None else b"",
        )
        data, link = write_link(header, payload, frame)
        self._tail = _after(tail, link, payload)
        return data


def restore(run_id: str, links: Sequence[bytes], *, run_version: int | None = None) -> Snapshot:
    """The newest snapshot that is whole; with `run_version`, the newest up to that version.

    Raises `SnapshotCorrupt`, of the last link, when none is.
    """
    faults: list[SnapshotCorrupt] = []
    begin = len(links)
    while begin > 0:
        begin = _newest_base(run_id, links[:begin], run_version)
        best: _Found | None = None
        for found in _walk(run_id, links[begin:], run_version):
            if isinstance(found, SnapshotCorrupt):
                faults.append(found)
                break
            best = found
        if best is not None:
            context = best.context.pack()
            return Snapshot(best.link.header, context, begin + best.place, tuple(faults))
    if faults:
        raise faults[0]
    raise SnapshotCorrupt(run_id, Fault.ORDER, "no link of its chain is that old")


def prune(run_id: str, links: Sequence[bytes], keep: int) -> list[bytes]:
    """The newest `keep` links; the first of them is made a base before what it needs goes.

    Every link that is kept restores to the same bytes. Raises `SnapshotCorrupt` if one does not:
    then nothing may be deleted.
    """
    if keep < 1:
        raise ValueError("keep at least one link")
    first = max(0, len(links) - keep)
    writer = ChainWriter(run_id)
    kept: list[bytes] = []
    for found in _walk(run_id, links):
        if isinstance(found, SnapshotCorrupt):
            raise found
        if found.place < first:
            continue
        header = found.link.header
        if found.place == first and header.kind is LinkKind.BASE:
            return list(links[first:])
        kept.append(writer.again(found.link, found.payload, found.context.pack))
    return kept


def _about(header: Header) -> About:
    return About(
        header.step,
        header.run_version,
        header.plan_digest,
        header.schema,
        header.schema_version,
        header.at_ms,
        header.dependencies,
    )


def _after(tail: _Tail | None, link: Link, payload: bytes) -> _Tail:
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
    version = link.header.run_version
    return _Tail(link.digest, version, dictionary[-DICTIONARY_BYTES_MAX:], rent, ratio)


def _newest_base(run_id: str, links: Sequence[bytes], run_version: int | None) -> int:
    """Where the newest chain begins that can hold the answer; 0 if nothing says so."""
    for place in range(len(links) - 1, 0, -1):
        try:
            header = read_link(run_id, links[place]).header
        except SnapshotCorrupt:
            continue
        if header.kind is LinkKind.BASE and (
            run_version is None or header.run_version <= run_version
        ):
            return place
    return 0


class _Found(NamedTuple):
    """A link that is whole. `context` is that of its version until the next one is asked for."""

    link: Link
    tail: _Tail
    context: Context
    place: int
    payload: bytes


def _walk(
    run_id: str, links: Sequence[bytes], run_version: int | None = None
) -> Iterator[_Found | SnapshotCorrupt]:
    """Each link that is whole, in order, up to a version; a fault for each that is not.

    Behind a fault nothing can be read until the next base. What failed has changed nothing of the
    context before it.
    """
    tail: _Tail | None = None
    context: Context | None = None
    for place, data in enumerate(links):
        try:
            link = read_link(run_id, data)
            if run_version is not None and link.header.run_version > run_version:
                return
            payload, context = _apply(link, tail, context)
        except SnapshotCorrupt as fault:
            tail, context = None, None
            yield fault
            continue
        tail = _after(None if link.header.kind is LinkKind.BASE else tail, link, payload)
        yield _Found(link, tail, context, place, payload)


def _apply(link: Link, tail: _Tail | None, context: Context | None) -> tuple[bytes, Context]:
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
            change = context.apply(payload, _UNBOUNDED)
            _check_size(header, change.size_bytes)
            change.adopt()
        else:
            context = Context.create(payload, _UNBOUNDED)
            _check_size(header, context.size_bytes)
    except ContextError as error:
        raise SnapshotCorrupt(run_id, Fault.CONTENT, str(error)) from error
    return payload, context


def _check_size(header: Header, found_bytes: int) -> None:
    if found_bytes != header.context_bytes:
        detail = f"a context of {found_bytes} bytes, its header says {header.context_bytes}"
        raise SnapshotCorrupt(header.run_id, Fault.CONTENT, detail)
