"""Is what was saved the fold of the archive, where the log has lost its first events?"""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast

import msgspec
import pytest
from msgspec import structs
from tests.unit.core.log import Log, chain, pack
from tests.unit.core.test_layouts import later_release
from tests.unit.storage.test_sweep import Bucket

from dalsegno.ops import verifying
from dalsegno.ops.archived import ArchiveGap
from dalsegno.ops.cli.verify import _result
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.ops.verifying import not_compared, verify_archived
from dalsegno.schemas import codec
from dalsegno.schemas.events import RunEvent, StepCompleted, StepStarted
from dalsegno.storage.archive.records import Kept, pack_records
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.state_codec import PREFIX_BYTES
from dalsegno.streams.core.tombstones import digest_of_id
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.verify import PartitionReport

SETTINGS = EngineSettings(mac_keys="k:" + "00" * 32, archive={"bucket": "b"})
STEP = {"step": "s0", "epoch": 1}


def some_work() -> Log:
    """Two runs, each through its first step."""
    log = Log(Partition(0, mac_keys=SETTINGS.keyring.ids, topic=SETTINGS.topics.events))
    for run_id in ("a", "b"):
        log.start(chain(2), run_id, context={"in": run_id})
        log.put(StepStarted(run_id=run_id, **STEP, worker="w", incarnation=1))
        log.put(StepCompleted(run_id=run_id, **STEP, ops=pack([["set", ["f0"], 1]])))
    return log


def kept(record: Record) -> Kept:
    assert isinstance(record.event, RunEvent)
    return Kept(record.offset, record.at_ms, record.key, codec.encode(record.event))


def archive_of(records: list[Kept]) -> Bucket:
    bucket = Bucket()
    for half in (records[: len(records) // 2], records[len(records) // 2 :]):
        writer = SegmentWriter(0, 1)
        first, last = half[0].offset, half[-1].offset
        writer.add(
            Kind.EVENTS, "", pack_records(half), first=first, last=last, count=len(half)
        )  # fmt: skip
        bucket.archive.put(writer.finish(1))
    return bucket


def verified(log: Log, bucket: Bucket, saved: dict[bytes, bytes] | None = None) -> PartitionReport:
    parts = log.partition.parts() if saved is None else saved
    return verify_archived(SETTINGS, parts, 0, 1, archive=bucket.archive, reader=None)


def test_a_partition_is_compared_with_the_fold_of_its_archive() -> None:
    log = some_work()
    report = verified(log, archive_of([kept(each) for each in log.records]))
    assert report.differences == ()
    assert (report.compared, report.archived_to, report.events) == ("archive", 6, 6)
    assert report.parts == len(log.partition.parts())
    assert report.counts["applied"] == 6
    assert _result(report) == "equal; events up to 6 from the archive"


def test_only_what_the_checkpoint_knows_is_folded() -> None:
    log = some_work()
    saved = log.partition.parts()
    log.put(StepStarted(run_id="a", step="s1", epoch=1, worker="w", incarnation=1))
    report = verified(log, archive_of([kept(each) for each in log.records]), saved)
    assert (report.differences, report.position, report.archived_to) == ((), 6, 6)


class CutLog:
    """Stands for Kafka: the log begins at 5, and nothing is in the changelog."""

    def __init__(self, *_: object) -> None:
        """As a reader, or a verifier, is made."""

    def bounds(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 5, 9

    def changelog(self, _partition: int) -> dict[bytes, bytes]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("bucket", ["", "b"])
def test_where_nothing_is_saved_nothing_differs(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind the restore of a changelog that was lost, until the first checkpoint."""
    monkeypatch.setattr(verifying, "Verifier", CutLog)
    settings = EngineSettings(mac_keys="k:" + "00" * 32, archive={"bucket": bucket})
    monkeypatch.setattr(verifying, "open_archive", lambda _: nullcontext(Bucket().archive))
    (report,) = verifying.verify_events(settings, cast(Reader, CutLog()), 1, (0,))
    assert report.right
    assert _result(report) == "nothing is saved yet"


def test_nothing_is_verified_without_the_key() -> None:
    """Every verdict and policy would count as forged: a difference that is none."""
    found = verifying.verify_events(EngineSettings(mac_keys={}), cast(Reader, CutLog()), 1, (0,))
    with pytest.raises(NoKeyError):
        next(found)


def test_a_difference_is_found() -> None:
    log = some_work()
    bucket = archive_of([kept(each) for each in log.records])
    saved = log.partition.parts()
    key = next(key for key in saved if key.startswith(b"cb"))
    report = verified(log, bucket, {**saved, key: saved[key][:-1] + b"\2"})
    assert len(report.differences) == 1
    assert key.hex() in report.differences[0]
    assert _result(report).startswith("1 differences; events up to 6")


def test_what_the_release_before_saved_is_no_difference() -> None:
    """The fold has more fields than what nothing has touched since the upgrade."""
    log = some_work()
    records = [kept(each) for each in log.records]
    saved = log.partition.parts()
    key = b"ra"
    fields = msgspec.msgpack.decode(saved[key][PREFIX_BYTES:])
    unlike = saved[key][:PREFIX_BYTES] + msgspec.msgpack.encode([*fields[:3], 9, *fields[4:]])
    with later_release():
        assert verified(log, archive_of(records), saved).differences == ()
        assert len(verified(log, archive_of(records), {**saved, key: unlike}).differences) == 1


def blanked(log: Log) -> list[Kept]:
    """The archive without run `a`."""
    digest, records = digest_of_id("a"), []
    for each in log.records:
        event = each.event
        assert isinstance(event, RunEvent)
        if event.run_id == "a":
            name = type(event).__name__
            headers = ((b"erased", digest),)
            records.append(Kept(each.offset, each.at_ms, None, None, headers, name, "applied"))
        else:
            records.append(kept(each))
    return records


def test_where_records_were_erased_it_says_what_was_not_compared() -> None:
    log = some_work()
    records = blanked(log)
    saved = {
        key: part
        for key, part in log.partition.parts().items()
        if key[1:2] != b"a" or key[:1] not in b"rscjvow"
    }
    report = verified(log, archive_of(records), saved)
    assert (report.differences, report.erased) == ((), 3)
    assert "own part is compared by its counts" in _result(report)
    context = next(key for key in saved if key.startswith(b"cb"))
    damaged = {**saved, context: saved[context][:-1] + b"\2", b"sb\0\0\0": b"\x90"}
    unlike = verified(log, archive_of(records), damaged)
    assert len(unlike.differences) == 2, "runs are compared all the same"
    records[0] = structs.replace(records[0], outcome="duplicate")
    assert "counts: changelog" in verified(log, archive_of(records), saved).differences[0]


def test_what_was_not_compared_is_never_called_equal() -> None:
    log = some_work()
    bucket = archive_of([kept(each) for each in log.records[:4]])
    with pytest.raises(ArchiveGap, match="events 4 to 5 are nowhere"):
        verified(log, bucket)
    report = not_compared(0, log.partition.parts(), 4, "no bucket")
    assert (report.compared, report.position, report.events) == ("", 6, 0)
    assert _result(report) == "not compared: the log begins at 4; no bucket"
    assert _result(PartitionReport(0, 0, 0, 0, ())) == "nothing is saved yet"
