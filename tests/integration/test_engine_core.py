"""The engine with the real core: runs of five steps, over kill -9, to the last byte."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

import pytest
from benchmarks.engine_lab.load import EVENTS_PER_RUN, STEPS, events
from tests.integration.engine.harness import Lab, wait_for

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode
from dalsegno.schemas.outputs import DeadLetter, Handoff, RunState
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.header_names import LenientHeaders
from dalsegno.streams.engine.raw import raw_event
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka
RUNS = 60


def test_runs_end_right_and_the_changelog_is_the_fold_though_the_engine_is_killed(
    lab: Lab,
) -> None:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    load = events(RUNS)
    lab.send(islice(load, 300))
    engine.kill()
    lab.send(load)
    engine.restart()
    engine.wait_ready()

    def all_ended() -> bool:
        status, body = engine.get(f"/runs?state={RunState.SUCCEEDED}&limit=1000")
        return status == 200 and len(body["runs"]) == RUNS  # type: ignore[call-overload, index]

    wait_for("all runs", all_ended)
    engine.wait_caught_up()
    assert engine.term() == 0  # a client may know of a state before its transition is in the topic
    handoffs = lab.ordered(lab.topics.queue("default"))
    given = [decode(m.value()) for kept in handoffs.values() for _, m in kept]
    steps = {(h.run_id, h.step, h.epoch) for h in given if isinstance(h, Handoff)}
    assert len(steps) == len(given) == RUNS * STEPS
    transitions = lab.ordered(lab.topics.transitions)
    assert sum(map(len, transitions.values())) == RUNS * EVENTS_PER_RUN
    reports = list(verify(lab.settings, Partition, lab.partitions))
    for report in reports:
        assert report.right, report.differences
        assert sum(report.counts.values()) + report.waiting == report.events
        assert lab.left(report.partition, report.position) == []


def test_a_dead_letter_of_the_core_carries_the_record_and_the_reason(lab: Lab) -> None:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    lab.send_raw(2, b"key", b"not an event", [("h", b"1")])
    lab.flush()
    letters = wait_for("the letter", lambda: lab.read(lab.topics.dead_letters, 2))
    letter = decode(dict(letters[0].headers())[headers.DEAD_LETTER])
    assert isinstance(letter, DeadLetter)
    assert (letter.topic, letter.partition, letter.reason) == (lab.topics.events, 2, "bad_frame")
    assert letters[0].value() == b"not an event"
    assert letters[0].headers()[0] == ("h", b"1")


def test_a_header_whose_name_is_no_utf8_costs_only_its_record(lab: Lab) -> None:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    asyncio.run(lab.send_bad_header_name(2))
    lab.send_raw(2, b"key", b"not an event", [])
    lab.flush()
    wait_for("both letters", lambda: len(lab.read(lab.topics.dead_letters, 2)) == 2)
    letters = lab.read(lab.topics.dead_letters, 2)
    found = [decode(dict(letter.headers())[headers.DEAD_LETTER]) for letter in letters]
    assert [letter.reason for letter in found] == ["bad_headers", "bad_frame"]  # type: ignore[union-attr]
    assert letters[0].headers()[0] == ("\\xff\\xfe\\xff\\xfe", b"1")
    assert engine.term() == 0
    for report in verify(lab.settings, Partition, lab.partitions):
        assert report.right, report.differences
    lenient = LenientHeaders(lab.settings)
    for _ in range(40):  # a call that is made often is made in another way
        names = [raw_event(each, lenient).headers for each in lab.read(lab.topics.events, 2)]
        assert (("\udcff\udcfe\udcff\udcfe", b"1"),) in names


def test_ticks_run_only_while_a_step_runs_or_a_deadline_is_due(lab: Lab) -> None:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    anchors = wait_for(
        "one tick per partition as the anchor",
        lambda: all(lab.end(lab.topics.events, p) == 1 for p in range(lab.partitions)),
    )
    assert anchors
    load = list(islice(events(1), 2))  # started, and its first step is running
    lab.send(load)
    busy = partition_for(load[0].run_id, lab.partitions)
    began = time.monotonic()
    before = lab.end(lab.topics.events, busy)
    wait_for("a tick each second", lambda: lab.end(lab.topics.events, busy) >= before + 3)
    assert time.monotonic() - began > 1.5, "two whole seconds, but for how late each one was"
    idle = [lab.end(lab.topics.events, p) for p in range(lab.partitions) if p != busy]
    assert idle == [1] * (lab.partitions - 1)
