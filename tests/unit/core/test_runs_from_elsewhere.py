"""Runs that another cluster archived, and runs that do not come back."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    step,
    transitions,
    view,
)
from tests.unit.core.shelf import Shelf, archived, waiting_for_a_person
from tests.unit.people.asking import decision, failed

from dalsegno.schemas.control import ErasureRequested, RunRestored
from dalsegno.schemas.events import PlanExtended, RiskFlagged, RunCancelled, RunPaused, RunResumed
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.streams.core.cold import digest_of_parts, pack_parts, unpack_parts


def test_a_person_is_told_once_why_it_does_not_come_back_and_it_still_may() -> None:
    shelf = Shelf()
    log, package = archived(shelf)
    log.put(decision(package, "retry"))
    lost = RunRestored(run_id="r", restore_id="1", parts=b"", digest=b"", trouble="missing: gone")
    (notice,) = escalations(log.put(lost))
    assert (notice.asked, notice.reason) == ("notice", "not_restored")
    assert "gone" in notice.message
    assert view(log).archived.trouble == "missing: gone"  # type: ignore[union-attr]
    assert log.put(lost) == []
    assert log.outcomes == [Outcome.DUPLICATE]
    again = escalations(log.put(msgspec.structs.replace(lost, trouble="damaged: digest")))
    assert again[0].escalation_id != notice.escalation_id
    assert_restores(log)
    out = log.put(shelf.bring(log.partition, "r"))
    assert [h.epoch for h in handoffs(out)] == [2]


def grown() -> Log:
    """A run whose plan grew twice, and then stands still."""
    log = Log()
    log.start(chain(1), more=True)
    for number in range(2):
        steps = (step(f"more{number}"),)
        log.put(PlanExtended(run_id="r", extension_id=f"{number}", steps=steps, last=number == 1))
    log.put(RunPaused(run_id="r", request_id="p"))
    for name in ("s0", "more0", "more1"):
        log.began(name)
        failed(log, name)
    return log


@pytest.mark.parametrize("made", [lambda: waiting_for_a_person()[0], grown])
def test_an_empty_cluster_takes_it_in_with_its_plan(made) -> None:  # type: ignore[no-untyped-def]
    shelf = Shelf()
    log = made()
    event = shelf.choose(log.partition)
    assert event is not None
    elsewhere = Log()
    elsewhere.now_ms = log.now_ms
    early = RiskFlagged(run_id="r", flag_id="f", flag="vip")
    elsewhere.put(early)
    brought = shelf.event(event.segment, "r", absent=True)
    out = elsewhere.put(brought)
    assert [t.cause for t in transitions(out)] == ["RunRestored", "RiskFlagged"]
    log.put(early)
    assert view(elsewhere).flags == ("vip",)
    assert msgspec.structs.replace(view(elsewhere), decisions=()) == view(log)
    saved = {key: value for key, value in elsewhere.partition.capture() if value is not None}
    assert saved == elsewhere.partition.parts()
    assert_restores(elsewhere)
    assert elsewhere.put(brought) == []
    assert elsewhere.outcomes == [Outcome.DUPLICATE]
    elsewhere.put(RunCancelled(run_id="r", request_id="c"))
    elsewhere.put(RunResumed(run_id="r", request_id="q"))
    assert_restores(elsewhere)


def test_what_is_no_whole_run_is_not_taken_in() -> None:
    shelf = Shelf()
    log, _ = waiting_for_a_person()
    event = shelf.choose(log.partition)
    assert event is not None
    right = shelf.event(event.segment, "r", absent=True)
    parts = unpack_parts(right.parts)

    def of(found: list[tuple[bytes, bytes]]) -> RunRestored:
        packed = pack_parts(found)
        return msgspec.structs.replace(right, parts=packed, digest=digest_of_parts(packed, 1))

    plan = next(key for key, _ in parts if key[:1] == b"p")
    wrongs = [
        of([part for part in parts if part[0] != plan]),
        of([part for part in parts if part[0] != b"rr"]),
        of([(key, b"\xc1" if key == plan else value) for key, value in parts]),
        of([*parts, (b"sother\0\0\0", b"\x90")]),
        of([*parts, (b"p" + bytes(32), b"\x90")]),
        of([]),
        msgspec.structs.replace(right, digest=b"x"),
        msgspec.structs.replace(right, parts=b"\xc1", digest=digest_of_parts(b"\xc1", 1)),
        msgspec.structs.replace(right, run_id="a\0b"),
        msgspec.structs.replace(right, run_id="s"),
        shelf.event(event.segment, "r"),
    ]
    elsewhere = Log()
    for wrong in wrongs:
        elsewhere.put(wrong)
        assert elsewhere.outcomes == [Outcome.REFUSED]
    assert list(elsewhere.partition.run_ids()) == []
    assert [key for key in elsewhere.partition.parts() if key[:1] == b"p"] == []
    elsewhere.put(right)
    assert elsewhere.outcomes == [Outcome.APPLIED]


def test_an_erased_run_leaves_the_state_from_the_archive_too_and_does_not_come_back() -> None:
    shelf = Shelf()
    log, package = archived(shelf, reply_to="starter")
    right = shelf.bring(log.partition, "r")
    absent = shelf.event(right.restore_id, "r", absent=True)
    log.put(decision(package, "retry"))
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip", reply_to="me"))
    erased = ErasureRequested(run_id="r", erasure_id="e", reason="asked", requested_by="ana")
    out = log.put(erased)
    told = answers(out)[0]
    assert (told.reply_to, told.run_state) == ("starter", RunState.CANCELLED)
    assert sorted(log.outcomes) == sorted([Outcome.APPLIED, Outcome.REFUSED, Outcome.REFUSED])
    partition = log.partition
    assert (partition.open_runs, partition.archived.count, partition.waiting) == (0, 0, 0)
    assert partition.archived.wanted() == []
    assert [key for key in partition.parts() if key[:1] in b"rscjvowp"] == []
    assert_restores(log)
    for event in (right, absent):
        log.put(event)
        assert log.outcomes == [Outcome.REFUSED]
    assert list(partition.run_ids()) == []
