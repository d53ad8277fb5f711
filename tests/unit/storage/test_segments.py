"""Segments: read in parts, verified before they are believed, and in the archive wholly or not."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.records import Kept, RecordsCorrupt, pack_records, unpack_records
from dalsegno.storage.archive.segment import (
    Damage,
    Kind,
    SegmentCorrupt,
    SegmentWriter,
    read_entry,
    read_index,
)


def segment(runs: int = 20, partition: int = 3) -> bytes:
    writer = SegmentWriter(partition, 8)
    for number in range(runs):
        payload = msgspec.msgpack.encode([[b"part", bytes([number]) * 500]])
        writer.add(Kind.RUN, f"r{number}", payload, first=100 + number, last=100 + number, count=1)
    records = [
        Kept(50 + n, 1_000 + n, b"r1", b"value %d" % n, ((b"h", b"x"), (b"\xff\xfe", b"")))
        for n in range(40)
    ]
    payload = pack_records(records)
    writer.add(Kind.EVENTS, "", payload, first=50, last=89, count=40)
    return writer.finish(1_700_000_000_000)


DATA = segment()


def reader(data: bytes, asked: list[int] | None = None):  # type: ignore[no-untyped-def]
    def read(first: int, size: int) -> bytes:
        if asked is not None:
            asked.append(size)
        return data[first : first + size]

    return read


def test_one_run_comes_back_by_a_few_small_reads() -> None:
    asked: list[int] = []
    read = reader(DATA, asked)
    index = read_index("k", len(DATA), read)
    entry = index.run("r7")
    assert entry is not None
    payload = read_entry("k", entry, read)
    assert msgspec.msgpack.decode(payload) == [[b"part", b"\7" * 500]]
    assert index.run("nobody") is None
    assert len(asked) == 4
    assert sum(asked) < len(DATA)


def test_records_come_back_as_they_were() -> None:
    index = read_index("k", len(DATA), reader(DATA))
    (entry,) = [each for each in index.entries if each.kind is Kind.EVENTS]
    records = unpack_records(read_entry("k", entry, reader(DATA)), entry.count, 50, 89)
    assert records[0] == Kept(50, 1_000, b"r1", b"value 0", ((b"h", b"x"), (b"\xff\xfe", b"")))
    assert len(records) == 40


@given(st.integers(0, len(DATA) * 8 - 1))
def test_no_bit_can_change_unnoticed(bit: int) -> None:
    changed = bytearray(DATA)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SegmentCorrupt):
        _read_all(bytes(changed))


@given(st.integers(0, len(DATA) - 1))
def test_no_part_of_a_segment_is_one(size: int) -> None:
    with pytest.raises(SegmentCorrupt):
        _read_all(DATA[:size])


def _read_all(data: bytes) -> None:
    read = reader(data)
    for entry in read_index("k", len(data), read).entries:
        read_entry("k", entry, read)


def test_a_newer_format_says_so() -> None:
    with pytest.raises(SegmentCorrupt, match="upgrade"):
        _read_all(DATA[:4] + b"\2" + DATA[5:])


def test_an_index_that_declares_more_than_there_is_allocates_nothing() -> None:
    end = struct.pack(">I32s4s", 1 << 31, b"\0" * 32, b"1gsd")
    data = DATA[: -len(end)] + end
    with pytest.raises(SegmentCorrupt) as caught:
        read_index("k", len(data), reader(data))
    assert caught.value.damage is Damage.INDEX


def test_of_records_all_come_back_or_none() -> None:
    """R155: the count in the index is checked."""
    records = [Kept(n, 0, None, b"v") for n in range(10)]
    payload = pack_records(records)
    assert unpack_records(payload, 10, 0, 9) == tuple(records)
    fewer = msgspec.msgpack.encode([10, msgspec.to_builtins(records[:9])])
    for damaged, count, first, last in (
        (payload, 9, 0, 9),
        (payload, 10, 1, 9),
        (payload, 10, 0, 8),
        (payload[:-1], 10, 0, 9),
        (payload + b"\0", 10, 0, 9),
        (fewer, 10, 0, 9),
    ):
        with pytest.raises(RecordsCorrupt):
            unpack_records(damaged, count, first, last)
    with pytest.raises(ValueError, match="offset 3 behind 3"):
        pack_records([Kept(3, 0, None, b""), Kept(3, 0, None, b"")])


def archive() -> tuple[Archive, MemoryObjects]:
    objects = MemoryObjects()
    return Archive(objects, "prod"), objects


def test_a_segment_is_listed_with_what_it_holds() -> None:
    made, _ = archive()
    manifest = made.put(DATA)
    assert made.put(DATA) == manifest, "again it is the same"
    made.put(segment(3, partition=4))
    assert [each.partition for each in made.manifests()] == [3, 4]
    (found,) = made.manifests(3)
    assert found == manifest
    assert (found.first_offset, found.last_offset, found.records) == (50, 119, 40)
    assert found.run_ids["r7"] == 107
    made.verify(found)
    assert msgspec.msgpack.decode(made.run(found, "r7")) == [[b"part", b"\7" * 500]]
    with pytest.raises(SegmentCorrupt, match="'r99' is in its manifest"):
        made.run(found, "r99")


class Lying(MemoryObjects):
    """Gives back what was not put."""

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        found = bytearray(super().get(key, first, size))
        found[len(found) // 2] ^= 1
        return bytes(found)


class Dying(MemoryObjects):
    """Ends at the nth request."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ArchiveError(Trouble.UNREACHABLE, "k", "as the test asked")

    def put(self, key: str, data: bytes) -> None:
        self._count()
        super().put(key, data)

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        self._count()
        return super().get(key, first, size)


def test_a_store_that_lies_archives_nothing() -> None:
    objects = Lying()
    made = Archive(objects, "prod")
    with pytest.raises(ArchiveError) as caught:
        made.put(DATA)
    assert caught.value.trouble is Trouble.DAMAGED
    assert [each.key for each in objects.list("prod/manifests/")] == []


@pytest.mark.parametrize("requests", [0, 1, 2, 3])
def test_a_crash_leaves_an_orphan_at_most_and_the_next_try_is_whole(requests: int) -> None:
    objects = Dying(requests)
    made = Archive(objects, "prod")
    with pytest.raises(ArchiveError):
        made.put(DATA)
    held = made.held(3)
    assert (len(held.segments), len(held.manifests)) == (min(1, requests), requests // 3)
    objects.left = 100
    made.put(DATA)
    held = made.held(3)
    assert held.segments.keys() == held.manifests.keys()
    assert len(held.manifests) == 1


@pytest.mark.parametrize("kind", ["segments", "manifests"])
def test_what_the_store_made_of_an_earlier_try_is_replaced(kind: str) -> None:
    objects = MemoryObjects()
    made = Archive(objects, "prod")
    manifest = made.put(DATA)
    key = f"prod/{kind}/{manifest.segment}"
    whole = objects.get(key)
    objects.delete([key])
    objects.put(key, whole[: len(whole) // 2])
    assert made.put(DATA) == manifest
    assert objects.get(key) == whole
    made.verify(manifest)


def test_what_is_listed_is_never_missing_while_it_is_deleted() -> None:
    class Stubborn(MemoryObjects):
        def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
            return {key: ArchiveError(Trouble.DENIED, key, "no") for key in keys if "mani" in key}

    objects = Stubborn()
    made = Archive(objects, "prod")
    manifest = made.put(DATA)
    failed = made.delete([manifest.segment])
    assert list(failed) == [f"prod/manifests/{manifest.segment}"]
    made.verify(manifest)


def test_rot_in_the_bucket_is_found() -> None:
    made, objects = archive()
    manifest = made.put(DATA)
    key = f"prod/segments/{manifest.segment}"
    objects.delete([key])
    objects.put(key, DATA[:200] + b"\0" + DATA[201:])
    with pytest.raises(SegmentCorrupt) as caught:
        made.verify(manifest)
    assert caught.value.damage is Damage.DIGEST
    with pytest.raises(SegmentCorrupt):
        made.data(manifest)
    objects.delete([key])
    with pytest.raises(ArchiveError) as missing:
        made.verify(manifest)
    assert missing.value.trouble is Trouble.MISSING


def test_manifests_that_are_none_are_refused() -> None:
    made, objects = archive()
    manifest = made.put(DATA)
    key = f"prod/manifests/{manifest.segment}"
    good = objects.get(key)
    for damaged in (b"", good[:-1], good.replace(b"00003/", b"00009/"), b"\x80"):
        objects.delete([key])
        objects.put(key, damaged)
        with pytest.raises(SegmentCorrupt):
            made.manifest(manifest.segment)


def test_a_manifest_with_any_other_byte_is_refused() -> None:
    """Also where it can be read, and tells of what no segment tells."""
    made, objects = archive()
    manifest = made.put(DATA)
    key = f"prod/manifests/{manifest.segment}"
    good = objects.get(key)
    for place in range(len(good)):
        objects.replace(key, good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(SegmentCorrupt):
            made.manifest(manifest.segment)
    objects.replace(key, good)
    assert made.manifest(manifest.segment) == manifest


def test_an_empty_or_oversized_segment_is_not_written() -> None:
    with pytest.raises(ValueError, match="nothing"):
        SegmentWriter(0, 8).finish(0)
