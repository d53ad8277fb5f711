"""The state of a run that the archive has lost, out of its events: exactly that one, or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import msgspec
import pytest
from tests.unit.core.log import Log, chain, view
from tests.unit.core.shelf import Shelf, leave
from tests.unit.core.test_layouts import later_release
from tests.unit.ops.test_verifying import SETTINGS, archive_of
from tests.unit.people.asking import failed

from dalsegno.ops import refolding, restoring
from dalsegno.ops.cli.archive_open import told
from dalsegno.ops.cli.failures import UsageFault
from dalsegno.ops.kafka.reader import LogRecord
from dalsegno.ops.refolding import NotRefoldedError, parts_from_events, refold
from dalsegno.ops.restoring import Here, Left, LeftAgainError, restore
from dalsegno.ops.whole_log import ArchiveGap
from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import ArchiveConfirmed, RunControl, RunRestored
from dalsegno.schemas.events import RiskFlagged, RunEvent
from dalsegno.storage.archive.records import Kept
from dalsegno.streams.core.cold import digest_of_parts
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.settings import EngineSettings

TOPIC = SETTINGS.topics.events


def raw(record: Record) -> RawEvent:
    """As it stands in the log."""
    assert isinstance(record.event, RunEvent | RunControl | ArchiveConfirmed)
    value = codec.encode(record.event)
    mac = SETTINGS.keyring.sign(SETTINGS.signing_key, TOPIC, 0, value)
    with_mac = () if isinstance(record.event, RunEvent) else ((headers.MAC, mac),)
    return RawEvent(record.offset, record.at_ms, record.key, value, with_mac)


def digest_of(log: Log) -> bytes:
    found = view(log).archived
    assert found is not None
    return bytes.fromhex(found.digest)


def left(shelf: Shelf) -> Log:
    """A run that waits for a person in the archive, beside one that goes on."""
    log = Log(Partition(0, mac_keys=SETTINGS.keyring.ids, topic=TOPIC))
    log.start(chain(2), context={"in": "x" * 400})
    log.start(chain(2), "other")
    log.began("s0")
    failed(log, "s0")
    leave(log, shelf)
    assert view(log).kind == "archived"
    return log


def refolded(records: Sequence[RawEvent], digest: bytes) -> dict[str, bytes]:
    return refold(SETTINGS, records, 0, 1, {"r": digest})


def test_the_state_is_made_anew_from_the_events_and_the_run_comes_back() -> None:
    shelf = Shelf()
    log = left(shelf)
    lost = shelf.bring(log.partition, "r")
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip"))
    found = refolded([raw(each) for each in log.records], lost.digest)
    assert found == {"r": lost.parts}
    log.put(RunRestored(run_id="r", restore_id="x", parts=found["r"], digest=digest_of(log)))
    assert view(log).kind == "run"
    assert view(log).flags == ("vip",), "what waited is applied"


def test_of_a_run_that_left_twice_it_is_the_state_that_is_asked_for() -> None:
    shelf = Shelf()
    log = left(shelf)
    first = shelf.bring(log.partition, "r")
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip"))
    log.put(first)
    leave(log, shelf)
    second = shelf.bring(log.partition, "r")
    assert first.parts != second.parts
    records = [raw(each) for each in log.records]
    for lost in (first, second):
        assert refolded(records, lost.digest) == {"r": lost.parts}


def test_a_later_release_makes_the_state_that_an_earlier_one_archived() -> None:
    shelf = Shelf()
    log = left(shelf)
    lost = shelf.bring(log.partition, "r")
    with later_release():
        assert refolded([raw(each) for each in log.records], lost.digest) == {"r": lost.parts}


def test_a_state_of_another_digest_is_none() -> None:
    shelf = Shelf()
    log = left(shelf)
    lost = shelf.bring(log.partition, "r")
    records = [raw(each) for each in log.records]
    without_an_event = [each for each in records if each.offset != 2]
    assert refolded(without_an_event, lost.digest) == {}
    assert refolded(records[:-1], lost.digest) == {}, "it has not left yet"
    assert refolded(records, digest_of_parts(b"another", 1)) == {}
    assert refolded(records, b"\x09" + lost.digest[1:]) == {}, "a layout of a later release"


class SomeLog:
    """Stands for Kafka, whose log begins at `low`."""

    def __init__(self, records: Sequence[RawEvent], low: int) -> None:
        self.records = records
        self.low = low

    def __enter__(self) -> SomeLog:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def partitions(self, _topic: str) -> int:
        return 1

    def bounds(self, _topic: str, _partition: int) -> tuple[int, int]:
        return self.low, len(self.records)

    def read(self, _topic: str, _partition: int, first: int, **_: object) -> list[LogRecord]:
        return [
            LogRecord(0, each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in self.records
            if each.offset >= max(first, self.low)
        ]


@pytest.mark.parametrize("low", [0, 3])
def test_events_come_from_the_log_while_it_has_them_all_and_else_from_the_archive_too(
    low: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()
    log = left(shelf)
    lost = shelf.bring(log.partition, "r")
    stored = SomeLog([raw(each) for each in log.records], low)
    monkeypatch.setattr(refolding, "Reader", lambda _: stored)
    bucket = archive_of([_kept(each) for each in stored.records[:4]])
    opened: list[EngineSettings] = []

    def opens(settings: EngineSettings) -> nullcontext[object]:
        opened.append(settings)
        return nullcontext(bucket.archive)

    monkeypatch.setattr(refolding, "open_archive", opens)
    assert parts_from_events(SETTINGS, "r", lost.digest) == lost.parts
    assert len(opened) == (low > 0), "a bucket that is away is not asked without need"
    with pytest.raises(NotRefoldedError, match="another digest"):
        parts_from_events(SETTINGS, "r", digest_of_parts(b"another", 1))
    stored.low = 5
    with pytest.raises(ArchiveGap, match="events 4 to 4 are nowhere"):
        parts_from_events(SETTINGS, "r", lost.digest)
    unarchived = EngineSettings(mac_keys="k:" + "00" * 32)
    with pytest.raises(UsageFault, match=r"no events before 5.*DALSEGNO_ARCHIVE_BUCKET"), told():
        parts_from_events(unarchived, "r", lost.digest)


def test_rules_that_this_code_does_not_know_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    log = left(Shelf())
    word = log.records[-1].event
    assert isinstance(word, ArchiveConfirmed)
    newer = msgspec.structs.replace(word, run_digests=(b"\x09" + word.run_digests[0][1:],))
    records = [raw(each) for each in log.records]
    records[-1] = raw(msgspec.structs.replace(log.records[-1], event=newer))
    monkeypatch.setattr(refolding, "Reader", lambda _: SomeLog(records, 0))
    with pytest.raises(NotRefoldedError, match=r"cannot be folded: .* start a newer one"):
        parts_from_events(SETTINGS, "r", digest_of_parts(b"another", 1))


def _kept(each: RawEvent) -> Kept:
    named = tuple((name.encode(), value or b"") for name, value in each.headers)
    return Kept(each.offset, each.timestamp, each.key, each.value, named)


class Asked:
    """Engines that tell of one run, one answer after the other; found as often as counted."""

    def __init__(self, *answers: dict[str, object]) -> None:
        self.answers = list(answers)
        self.found = 0

    def find(self, _settings: EngineSettings) -> Asked:
        self.found += 1
        return self

    def run(self, _run_id: str) -> dict[str, object]:
        return self.answers.pop(0)


def gone(digest: str, at_ms: int) -> dict[str, object]:
    archived = {"segment": "s", "digest": digest, "archived_ms": at_ms}
    return {"kind": "archived", "archived": archived}


BACK: dict[str, object] = {"kind": "run", "state": "waiting"}


@pytest.mark.parametrize(
    ("answers", "appended"),
    [
        ((gone("aa", 1), gone("aa", 1), BACK), 1),
        ((gone("aa", 1), gone("aa", 2), BACK), 1),
        ((gone("aa", 1), BACK), 0),
        ((gone("aa", 1), gone("bb", 2)), 0),
    ],
)
def test_a_run_that_moved_while_it_was_folded_is_left_as_it_is(
    answers: tuple[dict[str, object], ...], appended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, sent = Asked(*answers), []
    monkeypatch.setattr(restoring, "Engines", engines)
    monkeypatch.setattr(restoring, "append", lambda *each: sent.append(each))

    def source(left: Left) -> bytes:
        assert left.digest == b"\xaa"
        return b"parts"

    if answers[-1] is BACK:
        assert restore(SETTINGS, "r", 5, source) == Here("run", "waiting", brought=True)
    else:
        with pytest.raises(LeftAgainError, match="repeat"):
            restore(SETTINGS, "r", 5, source)
    assert len(sent) == appended
    assert engines.found == 2, "those that were there before the fold may be gone"
