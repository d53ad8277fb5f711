"""The archive of a bucket: segments, and a manifest beside each.

A segment is in the archive once its manifest is: the segment is put, read back and compared by its
digest, and only then the manifest follows. A segment without one is what a crash left; `sweep`
removes it. Names carry the digest of what they hold: two owners never write one name with different
bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dalsegno.storage.archive.objects import ArchiveError, Objects, Trouble
from dalsegno.storage.archive.segment import (
    STATES,
    Damage,
    Entry,
    Index,
    Kind,
    SegmentCorrupt,
    read_entry,
    read_index,
)

MANIFEST_BYTES_MAX: Final = 16 << 20
_SEGMENTS: Final = "segments/"
_MANIFESTS: Final = "manifests/"
_RUNS: Final = "runs-"
_DIGEST_CHARS: Final = 16
_DIGEST_BYTES: Final = 32


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What a listing shows of a segment. `digest`: SHA-256 of the whole object.

    `first_offset`, `last_offset`: of the events topic. `transitions_to`: see `Index`. `run_ids` are
    those whose state is in it, with the position of the fold that it has. `replaces`: the names of
    the segments in whose place it came, with the same offsets and less in them.
    """

    version: int = 1
    segment: str
    digest: bytes
    size: int
    partition: int
    partitions: int
    created_at_ms: int
    first_offset: int
    last_offset: int
    records: int
    transitions_to: int
    run_ids: dict[str, int]
    replaces: tuple[str, ...] = ()


class Held(NamedTuple):
    """Names of segments and of manifests in a bucket, each with when it was put, by its clock."""

    segments: Mapping[str, int]
    manifests: Mapping[str, int]


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Manifest).decode


def pack_manifest(manifest: Manifest) -> bytes:
    """As it is stored: MessagePack, and the SHA-256 of that."""
    packed = _pack(manifest)
    return packed + hashlib.sha256(packed).digest()


def unpack_manifest(key: str, stored: bytes) -> Manifest:
    """The manifest under this key. Raises `SegmentCorrupt`."""
    packed, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if hashlib.sha256(packed).digest() != digest:
        raise SegmentCorrupt(key, Damage.DIGEST, "the manifest is not the one that was written")
    try:
        return _unpack(packed)
    except msgspec.MsgspecError as error:
        raise SegmentCorrupt(key, Damage.INDEX, f"no manifest: {error}") from error


class Archive:
    """Everything under one prefix of a bucket. Calls block; raise `ArchiveError`."""

    def __init__(self, objects: Objects, prefix: str) -> None:
        self._objects = objects
        self._prefix = f"{prefix}/" if prefix and not prefix.endswith("/") else prefix

    def put(self, segment: bytes, replaces: tuple[str, ...] = ()) -> Manifest:
        """Put a segment, verify it, put its manifest. Again with the same bytes it does nothing.

        Raises `ArchiveError`; of what came back other than it was put, `DAMAGED`.
        """
        digest = hashlib.sha256(segment).digest()
        index = read_index("(new)", len(segment), lambda first, size: segment[first : first + size])
        name = _name(index, digest)
        self._put_whole(self._prefix + _SEGMENTS + name, segment)
        manifest = msgspec.structs.replace(
            _manifest(name, digest, len(segment), index), replaces=replaces
        )
        self._put_whole(self._prefix + _MANIFESTS + name, pack_manifest(manifest))
        if self._objects.stat(self._prefix + _SEGMENTS + name) is None:
            # We were away for so long that it was taken for what a crash had left.
            self._put_whole(self._prefix + _SEGMENTS + name, segment)
        return manifest

    def _put_whole(self, key: str, data: bytes) -> None:
        """Put it and read it back. Other bytes under its name, which carries its digest, are what
        the store made of a try before this one, or a lie of the store's: they are put over, never
        deleted before, since what is there may be another owner's and confirmed.
        """
        try:
            self._objects.put(key, data)
        except ArchiveError as error:
            if error.trouble is not Trouble.EXISTS:
                raise
            if self._objects.get(key) != data:
                self._objects.replace(key, data)
        if self._objects.get(key) != data:
            raise ArchiveError(Trouble.DAMAGED, key, "what came back is not what was put")

    def replace(self, old: Manifest, segment: bytes) -> Manifest:
        """Put a segment in the place of another one, and take that out.

        Once the new manifest is there, the old segment counts no more; `manifests` leaves it out
        whether or not it is gone. Again it does what is left to do. Raises `ArchiveError`.
        """
        manifest = self.put(segment, (*old.replaces, old.segment))
        for error in self.delete([old.segment]).values():
            raise error
        return manifest

    def names(self, partition: int | None = None) -> Iterator[str]:
        """Of the segments of events that have a manifest, by partition and offset.

        Raises `ArchiveError`.
        """
        prefix = self._prefix + _MANIFESTS + (f"{partition:05d}/" if partition is not None else "")
        for each in self._objects.list(prefix):
            name = each.key.removeprefix(self._prefix + _MANIFESTS)
            if offsets_of(name) is not None and name[:5].isdecimal():
                yield name

    def state_names(self, partition: int | None = None) -> Iterator[str]:
        """Of the segments with states of runs, by partition and position. Raises `ArchiveError`."""
        prefix = self._prefix + _MANIFESTS
        parts = "" if partition is None else f"{partition:05d}/{_RUNS}"
        for each in self._objects.list(prefix + parts):
            name = each.key.removeprefix(prefix)
            if name[:5].isdecimal() and offsets_of(name) is None and end_of(name) is not None:
                yield name

    def _all_names(self, partition: int | None) -> Iterator[str]:
        yield from self.names(partition)
        yield from self.state_names(partition)

    def manifests(self, partition: int | None = None) -> Iterator[Manifest]:
        """By partition and offset, those of states behind those of events, without those that were
        replaced. Raises `ArchiveError`, `SegmentCorrupt`.
        """
        found = [self.manifest(name) for name in self._all_names(partition)]
        replaced = {name for manifest in found for name in manifest.replaces}
        return (manifest for manifest in found if manifest.segment not in replaced)

    def replaced(self, partition: int) -> list[str]:
        """Segments that were replaced and are still there, with a manifest or without: a crash, or
        another owner, left them. Raises `ArchiveError`.
        """
        found = self._readable(partition)
        held = self.held(partition)
        gone = {name for manifest in found for name in manifest.replaces}
        return sorted(gone & {*held.segments, *held.manifests})

    def _readable(self, partition: int) -> list[Manifest]:
        """Manifests, without those that are damaged: one costs only itself."""
        found: list[Manifest] = []
        for name in self._all_names(partition):
            with suppress(SegmentCorrupt):  # told of where it is read
                found.append(self.manifest(name))
        return found

    def unlisted(self, partition: int, below: int) -> Iterator[tuple[str, bytes]]:
        """Name and bytes of segments without a manifest, of offsets below this one. Raises
        `ArchiveError`; `DAMAGED` where the listing leaves a manifest out that is there.
        """
        held = self.held(partition)
        for name in held.segments:
            end = end_of(name)
            if name not in held.manifests and end is not None and end < below:
                key = self._prefix + _SEGMENTS + name
                if self.has(name):
                    raise ArchiveError(Trouble.DAMAGED, key, "it is listed without its manifest")
                yield name, self._objects.get(key)

    def data(self, manifest: Manifest) -> bytes:
        """All of a segment, as its manifest says. Raises `ArchiveError`, `SegmentCorrupt`."""
        key = self._key(manifest)
        data = self._objects.get(key)
        if len(data) != manifest.size or hashlib.sha256(data).digest() != manifest.digest:
            raise SegmentCorrupt(key, Damage.DIGEST, "it is not what its manifest says")
        return data

    def manifest(self, segment: str) -> Manifest:
        """That of one segment, or of the one that has replaced it. Raises `ArchiveError`,
        `SegmentCorrupt`.
        """
        key = self._prefix + _MANIFESTS + segment
        stat = self._objects.stat(key)
        if stat is None:
            for each in (
                self._readable(_partition_of(segment)) if end_of(segment) is not None else ()
            ):
                if segment in each.replaces:
                    return each
            raise ArchiveError(Trouble.MISSING, key, "no such segment is in the archive")
        if stat.size > MANIFEST_BYTES_MAX:
            raise SegmentCorrupt(key, Damage.TOO_LARGE, f"a manifest of {stat.size} bytes")
        found = unpack_manifest(key, self._objects.get(key))
        if found.segment != segment:
            raise SegmentCorrupt(key, Damage.INDEX, f"the manifest of {found.segment!a}")
        return found

    def index(self, manifest: Manifest) -> Index:
        """The index of a segment, by ranges. Raises `ArchiveError`, `SegmentCorrupt`."""
        key = self._key(manifest)
        return read_index(key, manifest.size, self._reader(key))

    def index_of(self, segment: str) -> Index:
        """That of a segment which may have no manifest. Raises as `index` does."""
        key = self._prefix + _SEGMENTS + segment
        stat = self._objects.stat(key)
        if stat is None:
            raise ArchiveError(Trouble.MISSING, key, "there is no such segment")
        return read_index(key, stat.size, self._reader(key))

    def read(self, manifest: Manifest, entry: Entry) -> bytes:
        """One payload, by a range. Raises `ArchiveError`, `SegmentCorrupt`."""
        key = self._key(manifest)
        return read_entry(key, entry, self._reader(key))

    def run(self, manifest: Manifest, run_id: str) -> bytes:
        """The payload of a run. Raises `ArchiveError`, `SegmentCorrupt`."""
        entry = self.index(manifest).run(run_id)
        if entry is None:
            detail = f"run {run_id!a} is in its manifest and not in it"
            raise SegmentCorrupt(self._key(manifest), Damage.INDEX, detail)
        return self.read(manifest, entry)

    def verify(self, manifest: Manifest) -> None:
        """Read all of a segment and compare everything. Raises `ArchiveError`, `SegmentCorrupt`."""
        key, data = self._key(manifest), self.data(manifest)

        def read(first: int, size: int) -> bytes:
            return data[first : first + size]

        index = read_index(key, len(data), read)
        for entry in index.entries:
            read_entry(key, entry, read)
        told = msgspec.structs.replace(manifest, replaces=())
        if _manifest(manifest.segment, manifest.digest, len(data), index) != told:
            raise SegmentCorrupt(key, Damage.INDEX, "its manifest says other than its index")

    def held(self, partition: int) -> Held:
        """What the bucket has of a partition. Raises `ArchiveError`."""
        part = f"{partition:05d}/"
        segments, manifests = (
            {
                each.key.removeprefix(self._prefix + kind): each.at_ms
                for each in self._objects.list(self._prefix + kind + part)
            }
            for kind in (_SEGMENTS, _MANIFESTS)
        )
        return Held(segments, manifests)

    def has(self, segment: str) -> bool:
        """Whether there is a manifest, asked for by its name. Raises `ArchiveError`."""
        return self._objects.stat(self._prefix + _MANIFESTS + segment) is not None

    def delete(self, segments: Sequence[str]) -> Mapping[str, ArchiveError]:
        """Take segments out: manifests first, so that nothing listed is ever missing."""
        failed = dict(self._objects.delete([self._prefix + _MANIFESTS + s for s in segments]))
        gone = [s for s in segments if self._prefix + _MANIFESTS + s not in failed]
        return {**failed, **self._objects.delete([self._prefix + _SEGMENTS + s for s in gone])}

    def _key(self, manifest: Manifest) -> str:
        return self._prefix + _SEGMENTS + manifest.segment

    def _reader(self, key: str) -> _Reader:
        return _Reader(self._objects, key)


class _Reader:
    """Ranges of one object."""

    def __init__(self, objects: Objects, key: str) -> None:
        self._objects = objects
        self._key = key

    def __call__(self, first: int, size: int) -> bytes:
        return self._objects.get(self._key, first, size)


def _name(index: Index, digest: bytes) -> str:
    first, last = _span(index)
    if all(entry.kind in STATES for entry in index.entries):
        # Not among those of events, which follow each other by their names.
        return f"{index.partition:05d}/{_RUNS}{last:020d}-{digest.hex()[:_DIGEST_CHARS]}"
    return f"{index.partition:05d}/{first:020d}-{last:020d}-{digest.hex()[:_DIGEST_CHARS]}"


def _partition_of(segment: str) -> int:
    return int(segment.partition("/")[0])


def holds_states(segment: str) -> bool:
    """Whether a segment has states of runs, by its name."""
    return segment.rpartition("/")[2].startswith(_RUNS)


def offsets_of(segment: str) -> tuple[int, int] | None:
    """First and last offset, as the name of a segment says; None if it is no such name."""
    parts = segment.rpartition("/")[2].split("-")
    if len(parts) != 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])


def end_of(segment: str) -> int | None:
    """The last offset, or the position of the fold that states are of; None for any other name."""
    offsets = offsets_of(segment)
    if offsets is not None:
        return offsets[1]
    _, found, rest = segment.partition(f"/{_RUNS}")
    position = rest.partition("-")[0]
    return int(position) if found and position.isdecimal() else None


def _span(index: Index) -> tuple[int, int]:
    """Offsets of events; transitions have a topic, and offsets, of their own."""
    entries = [entry for entry in index.entries if entry.kind is not Kind.TRANSITIONS]
    entries = entries or list(index.entries)
    return min(each.first_offset for each in entries), max(each.last_offset for each in entries)


def _manifest(name: str, digest: bytes, size: int, index: Index) -> Manifest:
    first, last = _span(index)
    runs = {entry.name: entry.last_offset for entry in index.entries if entry.kind is Kind.RUN}
    return Manifest(
        segment=name,
        digest=digest,
        size=size,
        partition=index.partition,
        partitions=index.partitions,
        created_at_ms=index.created_at_ms,
        first_offset=first,
        last_offset=last,
        records=sum(entry.count for entry in index.entries if entry.kind not in STATES),
        transitions_to=index.transitions_to,
        run_ids=runs,
    )
