"""One suite for every object store: in memory, and a real S3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.contract.faulty_objects import Fault, FaultyObjects, at_every

from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Objects, Trouble
from dalsegno.storage.archive.s3 import S3Objects


@pytest.fixture(scope="module")
def real_s3() -> Iterator[EmbeddedS3]:
    with EmbeddedS3() as s3:
        yield s3


KINDS = [
    "memory", "s3", "memory, slow", "s3, slow", "memory, repeating", "s3, repeating",
]  # fmt: skip
EVERY = "put", "replace", "get", "stat", "list", "delete"


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    """Each kind as it is, and one that is slow or repeats: of that its users see nothing."""
    kind, _, how = request.param.partition(", ")
    made: Objects = MemoryObjects()
    if kind == "s3":
        made = S3Objects(request.getfixturevalue("real_s3").settings())
    if how:
        made = FaultyObjects(made, at_every(Fault("slow" if how == "slow" else "repeat"), *EVERY))
    yield made
    made.close()


@pytest.fixture
def folder() -> str:
    return f"{uuid.uuid4().hex}/"


def test_what_is_put_comes_back_whole_and_in_ranges(objects: Objects, folder: str) -> None:
    data = bytes(range(256)) * 40
    objects.put(folder + "k", data)
    assert objects.get(folder + "k") == data
    assert objects.get(folder + "k", 300, 20) == data[300:320]
    assert objects.get(folder + "k", 10_000) == data[10_000:]
    assert objects.get(folder + "k", 5, 0) == b""
    stat = objects.stat(folder + "k")
    assert stat is not None
    assert stat.size == len(data)


def test_no_object_is_written_over(objects: Objects, folder: str) -> None:
    objects.put(folder + "k", b"first")
    objects.put(folder + "k", b"first")
    with pytest.raises(ArchiveError) as caught:
        objects.put(folder + "k", b"other")
    assert caught.value.trouble is Trouble.EXISTS
    assert objects.get(folder + "k") == b"first"


def test_what_is_put_over_is_what_comes_back(objects: Objects, folder: str) -> None:
    objects.replace(folder + "k", b"first")
    objects.replace(folder + "k", b"second")
    assert objects.get(folder + "k") == b"second"
    assert [each.size for each in objects.list(folder)] == [6]


def test_what_is_not_there_is_missing(objects: Objects, folder: str) -> None:
    assert objects.stat(folder + "no") is None
    with pytest.raises(ArchiveError) as caught:
        objects.get(folder + "no")
    assert caught.value.trouble is Trouble.MISSING
    assert objects.delete([folder + "no"]) == {}


def test_more_than_there_is_is_damage(objects: Objects, folder: str) -> None:
    objects.put(folder + "k", b"v" * 10)
    with pytest.raises(ArchiveError) as caught:
        objects.get(folder + "k", 5, 10)
    assert caught.value.trouble is Trouble.DAMAGED


def test_listings_are_in_order_and_by_prefix(objects: Objects, folder: str) -> None:
    names = [f"{folder}a/{number:04d}" for number in range(30)]
    for name in reversed(names):
        objects.put(name, name.encode())
    objects.put(folder + "b", b"")
    assert [each.key for each in objects.list(folder + "a/")] == names
    assert len(list(objects.list(folder))) == 31
    assert objects.delete(names[:29]) == {}
    assert [each.key for each in objects.list(folder)] == [names[29], folder + "b"]


def test_a_store_that_was_killed_has_what_it_took(real_s3: EmbeddedS3, folder: str) -> None:
    objects = S3Objects(real_s3.settings(attempts=1))
    for number in range(20):
        objects.put(f"{folder}{number}", b"v%d" % number)
    real_s3.kill()
    with pytest.raises(ArchiveError) as caught:
        objects.put(folder + "late", b"")
    assert caught.value.passing
    real_s3.start()
    assert [objects.get(f"{folder}{number}") for number in range(20)] == [
        b"v%d" % number for number in range(20)
    ]
    objects.close()


def test_wrong_keys_are_denied(real_s3: EmbeddedS3) -> None:
    objects = S3Objects(real_s3.settings(secret_access_key="wrong"))
    with pytest.raises(ArchiveError) as caught:
        objects.check()
    assert caught.value.trouble is Trouble.DENIED
    objects.close()


def test_a_bucket_that_is_not_there_is_said_to_be(real_s3: EmbeddedS3) -> None:
    objects = S3Objects(real_s3.settings(bucket="another"))
    with pytest.raises(ArchiveError) as caught:
        objects.check()
    assert caught.value.trouble is Trouble.CONFIGURED
    assert "check bucket" in str(caught.value)
    objects.close()
