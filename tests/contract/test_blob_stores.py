"""Blobs over every object store, and over ones that fail, lie, truncate, repeat or lose answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.faulty_objects import Decide, Fault, FaultyObjects, at_request
from tests.unit.storage.blob_lab import GRACE_MS, Clock, flipped, packed

from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Objects
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.storage.blobs.sweep import Unheld

BLOB, DATA = packed(70_000)
REQUESTS = 9
"""More than a put takes."""


@pytest.fixture(scope="module")
def real_s3() -> Iterator[EmbeddedS3]:
    with EmbeddedS3() as s3:
        yield s3


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    made: Objects = MemoryObjects(now_ms)
    if request.param == "s3":
        made = S3Objects(request.getfixturevalue("real_s3").settings())
    yield made
    made.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def store(objects: Objects, prefix: str) -> BlobStore:
    return BlobStore(objects, prefix, now_ms)


def test_a_blob_on_its_whole_way(objects: Objects) -> None:
    blobs = store(objects, uuid.uuid4().hex)
    assert not blobs.renew(7, BLOB)
    with pytest.raises(BlobMissing):
        blobs.get(7, BLOB)
    for _ in range(3):
        blobs.put(7, BLOB, DATA)
    assert blobs.renew(7, BLOB)
    assert blobs.get(7, BLOB) == DATA
    [kept] = blobs.stored(7)
    assert (kept.digest, kept.size) == (BLOB.digest, len(DATA))
    assert abs(kept.at_ms - now_ms()) < 60_000
    assert blobs.whole(kept)
    objects.delete([kept.key])
    objects.put(kept.key, flipped(DATA))
    assert not blobs.whole(kept)
    with pytest.raises(BlobCorrupt):
        blobs.get(7, BLOB)
    blobs.put(7, BLOB, DATA)
    assert blobs.get(7, BLOB) == DATA
    assert blobs.delete(list(blobs.stored(7))) == {}
    assert list(blobs.stored(7)) == []


@pytest.mark.parametrize("fault", Fault)
def test_a_put_that_was_answered_is_there_whatever_went_wrong(
    objects: Objects, fault: Fault
) -> None:
    for number in range(REQUESTS):
        prefix = uuid.uuid4().hex
        honest = store(objects, prefix)
        faulty = store(FaultyObjects(objects, at_request(number, fault)), prefix)
        try:
            faulty.put(1, BLOB, DATA)
        except ArchiveError:
            pass
        else:
            assert honest.get(1, BLOB) == DATA
        honest.put(1, BLOB, DATA)
        assert honest.get(1, BLOB) == DATA


@pytest.mark.parametrize("fault", Fault)
def test_what_is_read_is_what_was_put_or_an_error(objects: Objects, fault: Fault) -> None:
    prefix = uuid.uuid4().hex
    store(objects, prefix).put(1, BLOB, DATA)
    for number in range(4):
        blobs = store(FaultyObjects(objects, at_request(number, fault)), prefix)
        try:
            assert blobs.get(1, BLOB) == DATA
        except BlobMissing:
            assert fault is Fault.TRUNCATE, "only half a listing can hide what is there"
        except (ArchiveError, BlobCorrupt):
            continue


@st.composite
def scripts(draw: st.DrawFn) -> Decide:
    faults = draw(st.lists(st.sampled_from([None, None, *Fault]), min_size=1, max_size=60))
    left = iter(faults)
    return lambda name, key: next(left, None)


@settings(max_examples=150, deadline=None)
@given(script=scripts(), waits=st.lists(st.integers(0, 2 * GRACE_MS), min_size=6, max_size=6))
def test_many_faults_in_a_row_lose_nothing_that_a_put_has_answered_for(
    script: Decide, waits: list[int]
) -> None:
    """Sweeps that see half of what is there, and deletes that are done twice, among them."""
    clock = Clock()
    objects = MemoryObjects(clock)
    honest = BlobStore(objects, "p", clock, GRACE_MS)
    faulty = BlobStore(FaultyObjects(objects, script), "p", clock, GRACE_MS)
    unheld, held, since_ms = Unheld(GRACE_MS), False, 0
    for wait_ms in waits:
        try:
            faulty.put(1, BLOB, DATA)
        except ArchiveError:
            pass
        else:
            held, since_ms = True, clock.now_ms
        clock.now_ms += wait_ms
        in_time = held and clock.now_ms - since_ms < GRACE_MS // 2
        try:
            judged = unheld.judge(list(faulty.stored(1)), (), clock.now_ms)
            faulty.delete(judged.delete)
            faulty.delete([old for old, new in judged.replaced if faulty.whole(new)])
        except ArchiveError:
            continue
        if in_time:
            assert honest.get(1, BLOB) == DATA
