"""What stands on a store, over one that fails, lies, truncates, repeats or loses its answers.

Nothing wrong is ever believed: what comes back is what was put, or there is a typed error. Once the
store behaves again, the same call leads to the same as if nothing had been.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.faulty_objects import Decide, Fault, FaultyObjects, at_request
from tests.contract.faulty_tables import FaultyTable
from tests.unit.storage.tables import rocks
from tests.unit.storage.test_warm import OWN, a_run, told

from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Objects
from dalsegno.storage.archive.records import Kept, pack_records
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.segment import Kind, SegmentCorrupt, SegmentWriter, read_entry
from dalsegno.storage.errors import StoreError
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.warm import Place, WarmStore

REQUESTS = 7
"""More than putting a segment takes."""


@pytest.fixture(scope="module")
def real_s3() -> Iterator[EmbeddedS3]:
    with EmbeddedS3() as s3:
        yield s3


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    made: Objects = MemoryObjects()
    if request.param == "s3":
        made = S3Objects(request.getfixturevalue("real_s3").settings())
    yield made
    made.close()


def segment(first: int) -> bytes:
    writer = SegmentWriter(0, 1)
    records = [Kept(n, n, b"run", bytes([n % 256]) * 300) for n in range(first, first + 30)]
    payload = pack_records(records)
    writer.add(Kind.EVENTS, "", payload, first=first, last=first + 29, count=30)
    writer.add(Kind.RUN, "run", b"state" * 50, first=first, last=first, count=1)
    return writer.finish(1_000)


def listed(archive: Archive) -> list[Manifest]:
    """All that the archive lists, each verified: nothing that is listed may be wrong."""
    found = list(archive.manifests())
    for manifest in found:
        archive.verify(manifest)
    return found


@pytest.mark.parametrize("fault", Fault)
def test_a_segment_is_in_the_archive_as_it_was_put_or_not_at_all(
    objects: Objects, fault: Fault, request: pytest.FixtureRequest
) -> None:
    data = segment(0)
    for number in range(REQUESTS):
        prefix = f"{request.node.name}-{number}"
        honest = Archive(objects, prefix)
        faulty = Archive(FaultyObjects(objects, at_request(number, fault)), prefix)
        try:
            manifest = faulty.put(data)
        except ArchiveError:
            assert len(honest.held(0).manifests) <= 1
        else:
            assert listed(honest) == [manifest]
        manifest = honest.put(data)
        assert listed(honest) == [manifest]
        assert set(honest.held(0).segments) == {manifest.segment}


@pytest.mark.parametrize("fault", Fault)
def test_what_is_read_is_what_was_put_or_an_error(
    objects: Objects, fault: Fault, request: pytest.FixtureRequest
) -> None:
    prefix = request.node.name
    put = Archive(objects, prefix).put(segment(0))
    right = b"state" * 50
    for number in range(8):
        archive = Archive(FaultyObjects(objects, at_request(number, fault)), prefix)
        try:
            found = list(archive.manifests(0))
            for manifest in found:
                assert manifest == put
                assert archive.run(manifest, "run") == right
                archive.verify(manifest)
        except (ArchiveError, SegmentCorrupt):
            continue
        assert found or fault is Fault.TRUNCATE, "only half a listing can hide what is there"


@pytest.mark.parametrize("lies", range(4))
@pytest.mark.parametrize("lives", range(REQUESTS))
def test_what_another_owner_confirmed_is_never_gone_while_it_is_put_again(
    lies: int, lives: int
) -> None:
    """A store that lies about what is there makes nobody take it away, wherever he dies then."""
    data, objects = segment(0), MemoryObjects()
    honest = Archive(objects, "p")
    confirmed = honest.put(data)
    requests = 0
    gets = 0

    def decide(name: str, key: str) -> Fault | None:
        nonlocal requests, gets
        assert listed(honest) == [confirmed], f"gone before request {requests}"
        requests += 1
        gets += name == "get"
        if requests > lives:
            return Fault.FAIL
        return Fault.LIE if name == "get" and gets <= lies else None

    with suppress(ArchiveError):
        Archive(FaultyObjects(_Conflicts(objects), decide), "p").put(data)
    assert listed(honest) == [confirmed]


class _Conflicts(MemoryObjects):
    """What is there seems to be something else, whoever puts it again."""

    def __init__(self, objects: MemoryObjects) -> None:
        super().__init__()
        self._objects = objects._objects

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data + b"lie")


def test_a_segment_that_is_swept_before_its_manifest_is_put_is_there_in_the_end() -> None:
    """Its owner was away for longer than the sweep waits."""
    objects = MemoryObjects()

    def decide(name: str, key: str) -> Fault | None:
        if name == "put" and "/manifests/" in key:
            objects.delete([key.replace("/manifests/", "/segments/")])
        return None

    manifest = Archive(FaultyObjects(objects, decide), "p").put(segment(0))
    assert listed(Archive(objects, "p")) == [manifest]


@st.composite
def scripts(draw: st.DrawFn) -> Decide:
    faults = draw(st.lists(st.sampled_from([None, None, *Fault]), min_size=1, max_size=30))
    left = iter(faults)

    def decide(name: str, key: str) -> Fault | None:
        fault = next(left, None)
        # No protocol helps against a store that spoils what it had confirmed, once it has lied
        # about what is there: it keeps the old bytes, or has the new ones.
        spoils = name == "replace" and fault in (Fault.LIE, Fault.TRUNCATE)
        return Fault.FAIL if spoils else fault

    return decide


@settings(max_examples=60)
@given(script=scripts())
def test_many_faults_in_a_row_leave_nothing_wrong(script: Decide) -> None:
    objects = MemoryObjects()
    honest, faulty = Archive(objects, "p"), Archive(FaultyObjects(objects, script), "p")
    done: list[Manifest] = []
    for first in (0, 30, 0, 60, 30):
        try:
            done.append(faulty.put(segment(first)))
        except ArchiveError:
            continue
    for manifest in done:
        assert honest.manifest(manifest.segment) == manifest
        honest.verify(manifest)
        index = honest.index(manifest)
        assert read_entry("k", index.entries[1], lambda first, size: objects.get(
            f"p/segments/{manifest.segment}", first, size  # noqa: B023 - used at once
        )) == b"state" * 50  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 32))
def test_a_warm_store_over_a_faulty_table_has_what_was_put_in_or_says_that_it_is_lost(
    kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    folder: Path = tmp_path_factory.mktemp("faulty")
    held: Table = MemoryTable() if kind == "memory" else rocks(folder)
    faulty, right = FaultyTable(held), WarmStore(MemoryTable(), OWN)
    store = WarmStore(faulty, OWN)
    waiting: dict[bytes, bytes | None] = {}
    for number in range(40):
        name = f"r{rng.randrange(8)}"
        parts: dict[bytes, bytes | None] = {**a_run(name, b"%d" % number, log_due=number)}
        if rng.random() < 0.3:
            parts = dict.fromkeys(parts)
        right.put(parts, Place(number, number))
        waiting |= parts
        setattr(faulty, rng.choice(("busy", "full")), rng.choice((0, 0, 1)))
        faulty.twice = rng.random() < 0.3
        bend = rng.choice((None, None, _cut, _flip))
        faulty.lie = bend
        try:
            store.put(waiting, Place(number, number))
            waiting = {}
            store.load([name])
        except StoreError:
            pass
        faulty.lie = None
    faulty.busy = faulty.full = 0
    if waiting:
        store.put(waiting, right.place)
    assert told(store) == told(right)
    held.close()


def _cut(key: bytes, value: bytes) -> bytes:
    return value[:-1]


def _flip(key: bytes, value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:]
