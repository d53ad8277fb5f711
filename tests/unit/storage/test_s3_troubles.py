"""What an S3 can do wrong, and what the archive hears of it. FAULTS: archive."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.storage.s3_stub import Stub, stub_s3

from dalsegno.ops.embedded.ports import free_ports
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.s3_settings import S3Settings


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_s3() as made:
        yield made


def trouble_of(stub: Stub, **settings: object) -> ArchiveError:
    objects = S3Objects(stub.settings(**settings))
    with pytest.raises(ArchiveError) as caught:
        objects.put("k", b"v")
    objects.close()
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "trouble", "passing"),
    [
        (403, "AccessDenied", Trouble.DENIED, False),
        (403, "SignatureDoesNotMatch", Trouble.DENIED, False),
        (403, "SomethingNew", Trouble.DENIED, False),
        (404, "NoSuchBucket", Trouble.CONFIGURED, False),
        (503, "SlowDown", Trouble.BUSY, True),
        (500, "InternalError", Trouble.BUSY, True),
        (429, "TooManyRequests", Trouble.BUSY, True),
        (507, "InsufficientStorage", Trouble.FULL, True),
        (403, "QuotaExceeded", Trouble.FULL, True),
    ],
)
def test_every_refusal_has_its_kind(
    stub: Stub, status: int, code: str, trouble: Trouble, *, passing: bool
) -> None:
    stub.status, stub.code = status, code
    found = trouble_of(stub)
    assert (found.trouble, found.passing, found.key) == (trouble, passing, "k")


def test_tries_are_bounded(stub: Stub) -> None:
    stub.status, stub.code = 503, "SlowDown"
    trouble_of(stub, attempts=3)
    assert len(stub.requests) == 3


def test_who_never_answers_is_slow_and_who_is_not_there_unreachable(stub: Stub) -> None:
    stub.hang = True
    assert trouble_of(stub, attempts=1, read_timeout_ms=200).trouble is Trouble.SLOW
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    assert trouble_of(stub, attempts=1, endpoint=endpoint).trouble is Trouble.UNREACHABLE


def test_without_credentials_the_error_says_what_to_check(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    found = trouble_of(stub, access_key_id=None, secret_access_key=None)
    assert found.trouble is Trouble.DENIED
    assert "check the credentials" in str(found)


def test_an_answer_that_was_lost_is_no_conflict(stub: Stub) -> None:
    stub.lose_answers = 1
    objects = S3Objects(stub.settings())
    objects.put("k", b"v")
    assert [line.split()[0] for line in stub.requests] == ["PUT", "PUT", "GET"]
    with pytest.raises(ArchiveError) as caught:
        objects.put("k", b"other")
    assert caught.value.trouble is Trouble.EXISTS
    assert stub.objects == {"k": b"v"}
    objects.close()


def test_half_an_object_is_never_a_whole_one(stub: Stub) -> None:
    objects = S3Objects(stub.settings(attempts=1))
    objects.put("k", b"v" * 1_000)
    stub.cut = 10
    with pytest.raises(ArchiveError) as caught:
        objects.get("k")
    assert caught.value.trouble in (Trouble.UNREACHABLE, Trouble.DAMAGED)
    stub.cut = 0
    with pytest.raises(ArchiveError) as caught:
        objects.get("k", 990, 20)
    assert caught.value.trouble is Trouble.DAMAGED
    objects.close()


@pytest.mark.parametrize("refuse", [True, False])
def test_services_that_refuse_checksums_and_those_that_ignore_them(
    stub: Stub, *, refuse: bool
) -> None:
    """R038."""
    stub.refuse_checksums = refuse
    objects = S3Objects(stub.settings())
    objects.put("k", b"v")
    assert objects.get("k") == b"v"
    objects.close()
    asked = S3Objects(stub.settings(checksums=True, attempts=1))
    if refuse:
        with pytest.raises(ArchiveError):
            asked.put("other", b"v")
    else:
        asked.put("other", b"v")
    asked.close()


def test_where_bulk_deletion_is_refused_it_goes_one_by_one(stub: Stub) -> None:
    """R152."""
    stub.demand_md5, stub.refuse_delete = True, "kept"
    objects = S3Objects(stub.settings(attempts=1))
    for key in ("a", "b", "kept", "live"):
        objects.put(key, b"v")
    failed = objects.delete(["a", "b", "kept", "never"])
    assert {key: error.trouble for key, error in failed.items()} == {"kept": Trouble.DENIED}
    assert sorted(stub.objects) == ["kept", "live"]
    objects.close()


def test_fifty_threads_use_one_client(stub: Stub) -> None:
    """R111."""
    patient = {"connect_timeout_ms": 20_000, "read_timeout_ms": 20_000}
    objects = S3Objects(stub.settings(**patient))
    begin = threading.Barrier(50)
    errors: list[Exception] = []

    def archive(number: int) -> None:
        begin.wait()
        try:
            for turn in range(4):
                objects.put(f"{number}/{turn}", b"v")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=archive, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(stub.objects) == 200
    objects.close()


def test_an_upload_is_one_request_however_large(stub: Stub) -> None:
    """R080: nothing of an upload that breaks stays behind, for there are no parts."""
    objects = S3Objects(stub.settings(read_timeout_ms=20_000))
    objects.put("large", bytes(48 << 20))
    assert stub.requests == ["PUT /b/large"]
    assert len(stub.objects["large"]) == 48 << 20
    objects.close()


def test_settings_for_encryption_reach_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = S3Objects(
        S3Settings(bucket="b", region="us-east-1", encryption="aws:kms", kms_key_id="key")
    )
    seen: dict[str, object] = {}
    monkeypatch.setattr(objects._client, "put_object", seen.update)
    objects.put("k", b"v")
    assert (seen["ServerSideEncryption"], seen["SSEKMSKeyId"]) == ("aws:kms", "key")
    objects.close()


def test_a_store_in_trouble_is_not_asked_to_delete_one_by_one(stub: Stub) -> None:
    stub.status, stub.code = 503, "SlowDown"
    objects = S3Objects(stub.settings(attempts=1))
    names = [f"k{number}" for number in range(1_500)]
    failed = objects.delete(names)
    objects.close()
    assert set(failed) == set(names)
    assert {error.trouble for error in failed.values()} == {Trouble.BUSY}
    assert len(stub.requests) == 1
