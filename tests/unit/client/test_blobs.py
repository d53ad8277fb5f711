"""Large values between a client and an engine: over real HTTP, with stores and bytes that fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.unit.client.blob_engine import BlobEngine, Claims, blobs_of, engine_of
from tests.unit.storage.blob_lab import GRACE_MS, BlobLab, flipped, packed

from dalsegno.client import (
    Blob,
    BlobCorrupt,
    BlobMissing,
    BlobRefused,
    BlobStoreUnavailable,
    DependencyDown,
    Permanent,
    StepStopped,
    ValueRefusedError,
)
from dalsegno.schemas import values
from dalsegno.storage.archive.objects import Trouble
from dalsegno.streams.client.blobs import Blobs, NoBlobStore, Patience
from dalsegno.streams.client.engines import Engines
from dalsegno.streams.client.large import Large
from dalsegno.streams.engine import web_blobs

NOW = Patience(0.0)
LONG = Patience(60.0)
BLOB, DATA = packed(200_000)
DOCUMENT = "a line of a long document\n" * 400


@pytest.fixture
def lab() -> BlobLab:
    return BlobLab()


@pytest.fixture
def engine(lab: BlobLab) -> Iterator[BlobEngine]:
    with engine_of(lab) as made:
        yield made


def nowhere() -> str:
    """The address of a server that is not there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def ask(engine: BlobEngine, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    parts = urlsplit(engine.url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, found


def test_a_value_goes_out_and_comes_back(engine: BlobEngine) -> None:
    writer, reader = blobs_of(engine.url), blobs_of(engine.url)
    assert writer.put(1, DATA, NOW) == BLOB
    assert reader.get(1, BLOB, NOW) == DATA


def test_what_the_store_has_is_not_sent_again(lab: BlobLab, engine: BlobEngine) -> None:
    for _ in range(5):
        blobs_of(engine.url).put(1, DATA, NOW)
    assert engine.asked == ["POST", "PUT", "POST", "POST", "POST", "POST"]
    assert len(lab.keys()) == 1


def test_what_was_read_or_written_here_is_not_fetched_again(engine: BlobEngine) -> None:
    blobs = blobs_of(engine.url)
    blobs.put(1, DATA, NOW)
    assert blobs.get(1, BLOB, NOW) == DATA
    assert "GET" not in engine.asked


def test_the_cache_keeps_within_its_bound(engine: BlobEngine) -> None:
    blobs = blobs_of(engine.url, cache_bytes=450_000)
    every = [packed(200_000, mark) for mark in range(3)]
    for _, data in every:
        blobs.put(1, data, NOW)
    for blob, data in reversed(every):
        assert blobs.get(1, blob, NOW) == data
    assert engine.asked.count("GET") == 1


def test_a_flipped_bit_is_told_by_its_type(lab: BlobLab, engine: BlobEngine) -> None:
    blobs_of(engine.url).put(1, DATA, NOW)
    lab.damage(lab.keys()[0], flipped)
    with pytest.raises(BlobCorrupt) as caught:
        blobs_of(engine.url).get(1, BLOB, NOW)
    assert isinstance(caught.value, Permanent)
    assert lab.keys()[0] in str(caught.value)
    assert caught.value.error_class == "blob_corrupt"


def test_an_engine_that_sends_other_bytes_is_not_believed(
    lab: BlobLab, engine: BlobEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs_of(engine.url).put(1, DATA, NOW)
    monkeypatch.setattr(lab.store, "get", lambda _partition, _blob: flipped(DATA))
    with pytest.raises(BlobCorrupt, match="another digest"):
        blobs_of(engine.url).get(1, BLOB, NOW)


def test_a_blob_that_is_not_there_is_missing_at_once(engine: BlobEngine) -> None:
    with pytest.raises(BlobMissing) as caught:
        blobs_of(engine.url).get(1, BLOB, LONG)
    assert engine.asked == ["GET"]
    assert caught.value.blob == BLOB


def test_a_value_that_no_engine_takes_is_refused_and_not_tried_again(lab: BlobLab) -> None:
    with engine_of(lab, bytes_max=100_000) as engine, pytest.raises(BlobRefused, match="100000"):
        blobs_of(engine.url).put(1, DATA, LONG)
    assert len(engine.asked) == 1


def test_a_store_that_is_away_is_waited_for(lab: BlobLab, engine: BlobEngine) -> None:
    lab.objects.down = Trouble.UNREACHABLE
    done: list[Blob] = []
    waiting = threading.Thread(target=lambda: done.append(blobs_of(engine.url).put(1, DATA, LONG)))
    waiting.start()
    while engine.asked.count("POST") < 3:
        waiting.join(0.01)
        assert waiting.is_alive()
    lab.objects.down = None
    waiting.join(60)
    assert done == [BLOB]


def test_patience_has_an_end_and_the_error_says_what_the_engines_said(
    lab: BlobLab, engine: BlobEngine
) -> None:
    lab.objects.down = Trouble.FULL
    with pytest.raises(BlobStoreUnavailable, match="full") as caught:
        blobs_of(engine.url).put(1, DATA, Patience(0.3))
    assert isinstance(caught.value, DependencyDown)


def test_an_attempt_that_was_stopped_does_not_go_on_trying(
    lab: BlobLab, engine: BlobEngine
) -> None:
    lab.objects.down = Trouble.UNREACHABLE
    with pytest.raises(StepStopped):
        blobs_of(engine.url).put(1, DATA, Patience(60.0, lambda: len(engine.asked) >= 2))


def test_another_engine_helps_when_the_owner_does_not(engine: BlobEngine) -> None:
    blobs = blobs_of(nowhere(), engine.url)
    blobs.put(0, DATA, NOW)
    assert engine.asked == ["POST", "PUT"]


def test_an_owner_that_is_gone_is_not_asked_first_for_ever(engine: BlobEngine) -> None:
    claims = Claims(nowhere(), engine.url)
    blobs = Blobs(Engines(claims), from_bytes=1_000)  # type: ignore[arg-type]
    blobs.put(0, DATA, NOW)
    claims.now = {0: engine.url}
    before = claims.reads
    blobs.put(0, DATA, NOW)
    assert claims.reads == before + 1
    blobs.put(0, DATA, NOW)
    assert claims.reads == before + 1


def test_a_store_that_is_away_says_nothing_about_who_owns_what(
    lab: BlobLab, engine: BlobEngine
) -> None:
    claims = Claims(engine.url)
    blobs = Blobs(Engines(claims), from_bytes=1_000)  # type: ignore[arg-type]
    lab.objects.down = Trouble.UNREACHABLE
    for _ in range(3):
        with pytest.raises(BlobStoreUnavailable):
            blobs.put(0, DATA, NOW)
    assert claims.reads == 1


def test_no_engine_at_all_is_said() -> None:
    with pytest.raises(BlobStoreUnavailable):
        blobs_of(nowhere()).put(0, DATA, NOW)
    with pytest.raises(BlobStoreUnavailable, match="no engine"):
        blobs_of().put(0, DATA, NOW)


def test_engines_without_a_bucket_say_so(lab: BlobLab) -> None:
    with engine_of(lab, store=False) as engine:
        with pytest.raises(NoBlobStore):
            blobs_of(engine.url).put(0, DATA, LONG)
        with pytest.raises(BlobMissing, match="no blob store"):
            blobs_of(engine.url).get(0, BLOB, LONG)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size={len(DATA)}", flipped(DATA)), 422),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size={len(DATA)}", DATA[:-1]), 400),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size={len(DATA)}", DATA + b"x"), 400),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size=0", b""), 400),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size=-1", b""), 400),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}", DATA), 400),
        (("PUT", f"/blobs/1/{BLOB.digest.hex()}?size={1 << 40}", DATA), 413),
        (("PUT", "/blobs/1/../../segments/x?size=1", b"x"), 404),
        (("PUT", f"/blobs/x/{BLOB.digest.hex()}?size=1", b"x"), 404),
        (("GET", f"/blobs/1/{BLOB.digest.hex()[:-1]}?size=1", b""), 404),
        (("DELETE", f"/blobs/1/{BLOB.digest.hex()}?size=1", b""), 405),
    ],
)
def test_requests_that_make_no_sense_are_refused_and_store_nothing(
    lab: BlobLab, engine: BlobEngine, asked: tuple[str, str, bytes], status: int
) -> None:
    assert ask(engine, *asked)[0] == status
    assert lab.keys() == []


# What a step gives back, and what it reads.


def large(engine: BlobEngine, *secrets: str, from_bytes: int = 1_000) -> Large:
    return Large(blobs_of(engine.url, from_bytes=from_bytes), 1, LONG, secrets)


def test_large_fields_become_blobs_and_small_ones_stay(engine: BlobEngine) -> None:
    made = large(engine)
    fields: dict[str, object] = {"document": DOCUMENT, "pages": 400}
    assert made.needs_store(fields)
    kept = made.kept(fields)
    assert kept == {"document": Blob.of(values.pack(DOCUMENT)), "pages": 400}
    assert large(engine).whole(kept) == fields


def test_what_was_put_long_before_the_last_is_renewed_before_the_event(
    lab: BlobLab, engine: BlobEngine
) -> None:
    passing = iter((0.0, 4_000.0, 4_000.0, 4_001.0))
    made = Large(blobs_of(engine.url), 1, LONG, clock=lambda: next(passing))
    kept = made.kept({"first": DOCUMENT, "second": DOCUMENT + "2"})
    assert engine.asked == ["POST", "PUT", "POST", "PUT", "POST", "POST"]
    assert len(lab.keys()) == len(kept) == 2


def test_without_large_fields_nobody_is_asked(engine: BlobEngine) -> None:
    assert not large(engine).needs_store({"pages": 400, "list": [1, {"a": None}]})
    assert engine.asked == []


def test_secret_fields_stay_inline_and_saves_of_such_a_flow_too(engine: BlobEngine) -> None:
    made = large(engine, "letter")
    fields: dict[str, object] = {"letter": DOCUMENT}
    assert not made.needs_store(fields)
    assert made.kept(fields) == fields
    assert not made.too_long(made.pack(DOCUMENT)), "what is private to the step"
    assert made.too_long(made.pack(DOCUMENT), "another")
    assert engine.asked == []


def test_nothing_becomes_a_blob_unless_it_is_asked_for(engine: BlobEngine) -> None:
    assert not large(engine, from_bytes=0).needs_store({"document": DOCUMENT})


def test_without_a_store_values_stay_inline_and_it_is_not_asked_each_time(lab: BlobLab) -> None:
    with engine_of(lab, store=False) as engine:
        made = large(engine)
        assert made.kept({"document": DOCUMENT}) == {"document": DOCUMENT}
        assert not made.needs_store({"document": DOCUMENT})
        assert made.kept({"document": DOCUMENT}) == {"document": DOCUMENT}
        assert len(engine.asked) == 1


def test_a_reference_that_is_handed_on_is_renewed(lab: BlobLab, engine: BlobEngine) -> None:
    made = large(engine)
    kept = made.kept({"document": DOCUMENT})
    lab.clock.now_ms += GRACE_MS
    again: dict[str, object] = {"copy": {"of": [kept["document"]]}}
    assert made.needs_store(again)
    assert made.kept(again) == again
    assert len(lab.keys()) == 2, "under another name: no sweep can hit it"


def test_a_reference_to_nothing_is_refused_before_it_is_in_the_log(engine: BlobEngine) -> None:
    with pytest.raises(BlobMissing, match="give the value"):
        large(engine).kept({"copy": BLOB})


def test_a_value_that_no_context_holds_is_refused_with_its_path(engine: BlobEngine) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        large(engine).needs_store({"a": {"b": (1, 2)}})
    assert caught.value.path == "a.b"


def test_values_over_what_is_inline_at_most_go_out_as_blobs(engine: BlobEngine) -> None:
    made = large(engine)
    fields: dict[str, object] = {"image": bytes(7 << 20)}
    assert made.whole(made.kept(fields)) == fields


def test_what_was_fetched_before_is_not_waited_for_when_it_is_read(
    lab: BlobLab, engine: BlobEngine
) -> None:
    kept = large(engine).kept({"document": DOCUMENT})
    made = large(engine)
    assert made.fetch([values.pack(kept), b"", values.pack({"n": 1})])
    lab.objects.down = Trouble.UNREACHABLE
    first = made.whole(kept["document"])
    assert first == DOCUMENT
    assert engine.asked.count("GET") == 1


def test_what_cannot_be_fetched_is_raised_when_it_is_read(engine: BlobEngine) -> None:
    made = large(engine)
    assert made.fetch([values.pack({"gone": BLOB, "here": 1})])
    assert made.whole(1) == 1
    with pytest.raises(BlobMissing):
        made.whole(BLOB)


def test_bytes_of_other_languages_that_are_no_value_disturb_nobody(engine: BlobEngine) -> None:
    save = b"\xc1" + values.pack(BLOB)
    assert not large(engine).fetch([save])
    assert engine.asked == []


def test_each_read_gives_a_value_of_its_own(engine: BlobEngine) -> None:
    kept = large(engine).kept({"lines": [DOCUMENT]})
    made = large(engine)
    first = made.whole(kept["lines"])
    assert isinstance(first, list)
    first.append("more")
    assert made.whole(kept["lines"]) == [DOCUMENT]


def test_bytes_that_are_no_value_are_damage(engine: BlobEngine) -> None:
    blobs_of(engine.url).put(1, b"\xc1" * 2_000, NOW)
    with pytest.raises(BlobCorrupt, match="no value"):
        large(engine).whole(Blob.of(b"\xc1" * 2_000))


def put_without_bytes(engine: BlobEngine) -> tuple[int, str]:
    """What is said to a put whose bytes come only after the answer."""
    address = urlsplit(engine.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    connection.putrequest("PUT", f"/blobs/1/{BLOB.digest.hex()}?size={BLOB.size}")
    connection.putheader("Content-Length", str(BLOB.size))
    connection.endheaders()
    answer = connection.getresponse()
    told = msgspec.json.decode(answer.read())["error"]
    with suppress(OSError):  # the engine may have hung up
        connection.send(DATA)
    connection.close()
    return answer.status, told


def test_bytes_that_do_not_come_are_not_taken_for_a_crowd(
    engine: BlobEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_blobs, "_BODY_S", 0.05)
    assert put_without_bytes(engine) == (503, "slow")
    engine.no_turns()
    monkeypatch.setattr(web_blobs, "_TURN_S", 0.05)
    assert put_without_bytes(engine) == (503, "busy")
