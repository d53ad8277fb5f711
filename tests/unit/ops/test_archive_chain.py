"""The segments of a partition as a reader takes them: two owners, damage, and what is missing."""

from __future__ import annotations

import pytest
from tests.unit.storage.test_sweep import Bucket

from dalsegno.ops.archived import ArchiveGap, chain_of, transitions_of
from dalsegno.schemas import headers
from dalsegno.storage.archive.archive import Manifest
from dalsegno.storage.archive.records import Kept, pack_records
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.core.sequence import Sequence

SEQUENCE = headers.SEQUENCE.encode()


def damage(bucket: Bucket, manifest: Manifest) -> None:
    key = f"p/manifests/{manifest.segment}"
    bucket.objects.replace(key, bucket.objects.get(key)[:-1] + b"?")


def test_a_damaged_manifest_costs_only_itself_where_others_lead_on() -> None:
    bucket = Bucket()
    whole = bucket.put(0, 10), bucket.put(10, 20)
    damage(bucket, bucket.put(0, 12, "another owner"))
    assert chain_of(bucket.archive, 0) == [*whole]


def test_without_another_way_it_is_a_gap_and_the_damage_is_named() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    damage(bucket, bucket.put(10, 20))
    with pytest.raises(ArchiveGap, match=r"events 10 to 19: .*not the one that was written"):
        chain_of(bucket.archive, 0)
    bucket.put(20, 30)
    with pytest.raises(ArchiveGap, match="events 10 to 19"):
        chain_of(bucket.archive, 0)


def test_what_was_replaced_is_not_read_though_it_is_still_there() -> None:
    bucket = Bucket()
    old = bucket.put(0, 10)
    key = f"p/segments/{old.segment}"
    kept = {each: bucket.objects.get(each) for each in (key, key.replace("segments", "manifests"))}
    writer = SegmentWriter(0, 1)
    blank = pack_records([Kept(n, n, None, None, (), "RunStarted", "applied") for n in range(10)])
    writer.add(Kind.EVENTS, "", blank, first=0, last=9, count=10)
    new = bucket.archive.replace(old, writer.finish(1))
    for name, data in kept.items():
        bucket.objects.put(name, data)
    assert chain_of(bucket.archive, 0) == [new]


def test_transitions_that_two_owners_archived_come_once() -> None:
    bucket = Bucket()
    for end in (5, 8):
        writer = SegmentWriter(0, 1)
        events = [Kept(n, n, b"r", b"event") for n in range(end)]
        told = [
            Kept(
                n, n, b"r", b"%d" % n, ((headers.SEQUENCE.encode(), Sequence(n, 0, n + 1).pack()),)
            )
            for n in range(end)
        ]
        for kind, records in ((Kind.EVENTS, events), (Kind.TRANSITIONS, told)):
            payload = pack_records(records)
            writer.add(kind, "", payload, first=0, last=end - 1, count=end)
        bucket.archive.put(writer.finish(1))
    found = transitions_of(bucket.archive, chain_of(bucket.archive, 0))
    assert [each.value for each in found] == [b"%d" % n for n in range(8)]
