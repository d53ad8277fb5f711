"""Blobs in an object store: `<prefix>/blobs/<partition>/<sha256>/<generation>`.

Objects are never written over, and a name that was deleted is never used again: a generation is the
time of its put in half graces, by this machine's clock. So a sweep that deletes what it saw in a
listing, however long ago, cannot hit what was put since. A put of a blob that is there already
takes it as it is while it is young, and otherwise makes a new generation of the same bytes; the old
one goes with a later sweep.

What `put` or `renew` has said yes to stays for half a grace whatever any sweep does (`sweep.py` has
the argument): within that the event that names it has to be in the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dalsegno.schemas.blob import DIGEST_BYTES, Blob
from dalsegno.storage.archive.objects import ArchiveError, Objects, ObjectStat, Trouble
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing

FOLDER: Final = "blobs/"
GRACE_MS: Final = 24 * 3_600_000
_RESERVES: Final = 8
"""Further names of one generation, for when what has its name is damaged or old."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One generation of a blob. `at_ms`: when it was put, by the store's clock."""

    partition: int
    digest: bytes
    key: str
    size: int
    at_ms: int


class BlobStore:
    """Calls block; any thread may call. All raise `ArchiveError` when the store is in trouble."""

    def __init__(
        self, objects: Objects, prefix: str, now_ms: Callable[[], int], grace_ms: int = GRACE_MS
    ) -> None:
        """`grace_ms`: how long nobody's blob stays; far above what clocks differ by."""
        self._objects = objects
        self._prefix = f"{prefix}/{FOLDER}" if prefix else FOLDER
        self._now_ms = now_ms
        self.grace_ms = grace_ms

    def put(self, partition: int, blob: Blob, packed: bytes) -> None:
        """Keep these bytes; returns once they were read back and compared.

        Raises `BlobCorrupt` when they are not what the blob says.
        """
        if not blob.matches(packed):
            raise BlobCorrupt(partition, blob, ())
        if not self.renew(partition, blob):
            self._make(partition, blob, packed)

    def renew(self, partition: int, blob: Blob) -> bool:
        """Whether the blob is there, whole, and will be for half a grace. False: put it."""
        for each in self._generations(partition, blob):
            packed = self._read(blob, each)
            if packed is None:
                continue
            if self._now_ms() - each.at_ms >= self.grace_ms // 2:
                self._make(partition, blob, packed)
            return True
        return False

    def get(self, partition: int, blob: Blob) -> bytes:
        """The bytes, verified. Raises `BlobMissing`, `BlobCorrupt`."""
        found = self._generations(partition, blob)
        for each in found:
            packed = self._read(blob, each)
            if packed is not None:
                return packed
        damaged = tuple(each.key for each in found if self._objects.stat(each.key) is not None)
        if damaged:
            raise BlobCorrupt(partition, blob, damaged)
        raise BlobMissing(partition, blob)

    def stored(self, partition: int | None = None) -> Iterator[Stored]:
        """All generations of a partition, or of all, in the order of their keys."""
        prefix = self._prefix if partition is None else f"{self._prefix}{partition:05d}/"
        for stat in self._objects.list(prefix):
            stored = _stored(stat)
            if stored is not None:
                yield stored

    def whole(self, stored: Stored) -> bool:
        """Whether a generation is there and has the bytes that its name says."""
        try:
            return hashlib.sha256(self._objects.get(stored.key)).digest() == stored.digest
        except ArchiveError as error:
            if error.trouble in (Trouble.MISSING, Trouble.DAMAGED):
                return False
            raise

    def delete(self, stored: Sequence[Stored]) -> Mapping[str, ArchiveError]:
        """Delete generations; what could not be deleted, by key."""
        return self._objects.delete([each.key for each in stored])

    def _generations(self, partition: int, blob: Blob) -> list[Stored]:
        """The newest first."""
        prefix = self._folder(partition, blob)
        found = [stored for stat in self._objects.list(prefix) if (stored := _stored(stat))]
        return sorted(found, key=lambda each: (each.at_ms, each.key), reverse=True)

    def _read(self, blob: Blob, stored: Stored) -> bytes | None:
        """The bytes of a generation, or None when it has gone meanwhile or is damaged."""
        if stored.size != blob.size:
            return None
        try:
            packed = self._objects.get(stored.key)
        except ArchiveError as error:
            if error.trouble in (Trouble.MISSING, Trouble.DAMAGED):
                return None
            raise
        return packed if blob.matches(packed) else None

    def _make(self, partition: int, blob: Blob, packed: bytes) -> None:
        generation = self._now_ms() // max(1, self.grace_ms // 2)
        name = f"{self._folder(partition, blob)}{generation:012d}"
        for reserve in range(_RESERVES):
            key = f"{name}-{reserve}" if reserve else name
            try:
                self._objects.put(key, packed)
            except ArchiveError as error:
                if error.trouble is not Trouble.EXISTS:
                    raise
                continue  # what has this name is damaged
            # It may have had this name before, by a clock that was ahead: then it is not young.
            stat = self._objects.stat(key)
            young = stat is not None and self._now_ms() - stat.at_ms < self.grace_ms // 2
            if young and blob.matches(self._objects.get(key)):
                return
        raise ArchiveError(Trouble.DAMAGED, name, "what comes back is not what was put, or is old")

    def _folder(self, partition: int, blob: Blob) -> str:
        return f"{self._prefix}{partition:05d}/{blob.digest.hex()}/"


def _stored(stat: ObjectStat) -> Stored | None:
    """None for an object whose key is none of ours: it is left alone."""
    parts = stat.key.split("/")
    if len(parts) < 3 or len(parts[-2]) != 2 * DIGEST_BYTES:
        return None
    try:
        partition, digest = int(parts[-3]), bytes.fromhex(parts[-2])
    except ValueError:
        return None
    return Stored(partition, digest, stat.key, stat.size, stat.at_ms)
