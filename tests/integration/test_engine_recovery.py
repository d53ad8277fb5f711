"""What an engine puts out and keeps, over kill -9, SIGTERM, a rebalance and a freeze."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec
import pytest
from tests.integration.engine.harness import EngineProcess, Lab, flags, per_partition, wait_for
from tests.integration.engine.tiny_fold import TinyFold

from dalsegno.schemas.codec import decode
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.restore import CLAIM_KEY
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka
RUNS = 40


def assert_outputs(lab: Lab, count: int) -> None:
    """Every event's transition once, every second one's handoff, in order, without a gap."""
    want = per_partition(lab, count, RUNS)

    def arrived() -> bool:
        return all(
            len(kept) == want.get(number, 0)
            for number, kept in lab.ordered(lab.topics.transitions).items()
        )

    wait_for("all transitions", arrived)
    expected = sum(len(range(run, count, RUNS)) // 2 for run in range(RUNS))

    def handed() -> int:
        return sum(map(len, lab.ordered(lab.topics.queue("default")).values()))

    wait_for("all handoffs", lambda: handed() >= expected)
    assert handed() == expected


def assert_state(lab: Lab) -> None:
    """The changelog is the fold of the log, byte for byte."""
    for report in verify(lab.settings, TinyFold, lab.partitions):
        assert report.right, report.differences


def assert_checkpointed(lab: Lab) -> None:
    def done() -> bool:
        reports = list(verify(lab.settings, TinyFold, lab.partitions))
        return not any(lab.left(report.partition, report.position) for report in reports)

    wait_for("checkpoints at the end of the log", done)


def test_events_become_transitions_and_handoffs(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(1_000, RUNS))
    assert_outputs(lab, 1_000)
    assert engine.term() == 0
    assert_checkpointed(lab)
    assert_state(lab)


def test_kill_9_under_load_leaves_no_gap_and_only_identical_repeats(lab: Lab) -> None:
    engine = lab.engine(DALSEGNO_SESSION_TIMEOUT_MS="1500", DALSEGNO_HEARTBEAT_INTERVAL_MS="200")
    engine.wait_ready()
    sent = 0
    for _ in range(3):
        sent += lab.send(flags(4_000, RUNS, sent))
        engine.kill()
        engine.restart()
        sent += lab.send(flags(2_000, RUNS, sent))
        engine.wait_ready()
    assert_outputs(lab, sent)
    assert_checkpointed(lab)
    assert_state(lab)


def test_sigterm_under_load_checkpoints_so_that_nothing_is_repeated(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(5_000, RUNS))
    wait_for("some outputs", lambda: lab.end(lab.topics.transitions, 0) > 0)
    began = time.monotonic()
    assert engine.term() == 0
    assert time.monotonic() - began < 10
    engine.restart()
    engine.wait_ready()
    assert_outputs(lab, 5_000)
    records = sum(lab.end(lab.topics.transitions, p) for p in range(lab.partitions))
    assert records == 5_000


def test_sigterm_ends_in_time_though_a_batch_never_does(lab: Lab) -> None:
    engine = lab.engine(DALSEGNO_STOP_TIMEOUT_MS="3000")
    engine.wait_ready()
    lab.send(flags(1, 1, flag="slow", reason="600"))
    wait_for("a busy loop", lambda: engine.get("/livez")[0] == 0, limit_s=30)
    began = time.monotonic()
    assert engine.term() != 0
    assert time.monotonic() - began < 10


def test_a_stop_in_which_something_fails_ends_the_rest_and_says_so(lab: Lab) -> None:
    engine = lab.engine(FAIL_CLOSE="1")
    engine.wait_ready()
    lab.send(flags(400, RUNS))
    engine.wait_caught_up()
    assert engine.term() == 1, "a failure"
    said = engine.said()
    assert "a fault of ours" in said
    assert "by force" not in said, "it ended by itself"
    assert_checkpointed(lab)
    assert_outputs(lab, 400)


def test_a_member_that_joins_and_leaves_moves_partitions_without_a_gap(lab: Lab) -> None:
    first = lab.engine()
    first.wait_ready()
    lab.send(flags(2_000, RUNS))
    second = lab.engine()
    second.wait_ready(2)
    first.wait_ready(2)
    lab.send(flags(2_000, RUNS, 2_000))
    assert first.term() == 0
    second.wait_ready(4)
    lab.send(flags(2_000, RUNS, 4_000))
    assert_outputs(lab, 6_000)
    assert second.term() == 0
    assert_checkpointed(lab)
    assert_state(lab)


def test_partitions_that_stay_in_a_rebalance_are_not_restored_again(lab: Lab) -> None:
    first = lab.engine()
    first.wait_ready()
    lab.send(flags(500, RUNS))
    assert_outputs(lab, 500)
    second = lab.engine()
    second.wait_ready(2)
    first.wait_ready(2)
    assert first.said().count("partition open") == lab.partitions


def test_a_restore_longer_than_the_poll_limit_costs_neither_the_place_nor_the_others(
    lab: Lab, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    engine = lab.engine(HOLD_RESTORE=str(gate), DALSEGNO_POLL_INTERVAL_MAX_MS="5000")
    wait_for("the other partitions", lambda: open_partitions(engine) == [1, 2, 3])
    lab.send(flags(400, RUNS))
    begun = time.monotonic()
    want = {n: count for n, count in per_partition(lab, 400, RUNS).items() if n != 0}

    def others_go_on() -> bool:
        found = lab.ordered(lab.topics.transitions)
        return {n: len(found.get(n, [])) for n in want} == want

    wait_for("the others' outputs", others_go_on)
    wait_for("twice the poll limit", lambda: time.monotonic() - begun > 10)
    assert engine.get("/readyz")[0] == 503
    assert open_partitions(engine) == [1, 2, 3]
    gate.touch()
    engine.wait_ready()
    assert_outputs(lab, 400)
    assert engine.said().count("partition open") == lab.partitions, "none was lost and taken again"
    assert engine.term() == 0
    assert_state(lab)


def open_partitions(engine: EngineProcess) -> list[int]:
    """Partitions that this engine folds."""
    status, body = engine.get("/partitions")
    own = body["own"] if status == 200 else []  # type: ignore[index, call-overload]
    return sorted(each["partition"] for each in own if each["state"] in ("ready", "busy"))


def test_an_engine_frozen_past_its_session_neither_writes_state_nor_stays(lab: Lab) -> None:
    env = {"DALSEGNO_SESSION_TIMEOUT_MS": "1500", "DALSEGNO_HEARTBEAT_INTERVAL_MS": "200"}
    first = lab.engine(**env)
    first.wait_ready()
    lab.send(flags(1_000, RUNS))
    first.signal(signal.SIGSTOP)
    second = lab.engine(**env)
    second.wait_ready()
    lab.send(flags(1_000, RUNS, 1_000))
    assert_outputs(lab, 2_000)
    first.signal(signal.SIGCONT)
    first.wait_ready(2)
    second.wait_ready(2)
    lab.send(flags(1_000, RUNS, 2_000))
    assert_outputs(lab, 3_000)
    assert first.term() == 0
    assert second.term() == 0
    assert_checkpointed(lab)
    assert_state(lab)


async def test_a_fenced_task_begins_again_only_because_the_group_says_it_is_still_ours(
    lab: Lab,
) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(500, RUNS))
    intruder = FencedProducer(lab.settings, f"{lab.prefix}-events-0")
    await intruder.start()
    await intruder.close()
    lab.send(flags(500, RUNS, 500))
    # A commit that was under way just then ends in an error of the broker that names no fence.
    told = ("FencedError", "OutcomeUnknownError")
    wait_for("a rebuild", lambda: any(name in engine.text("/metrics") for name in told))
    engine.wait_ready()
    lab.send(flags(500, RUNS, 1_000))
    assert_outputs(lab, 1_500)
    assert_checkpointed(lab)
    assert_state(lab)


@pytest.mark.parametrize("events", [0, 400])
def test_a_restart_is_ready_quickly_on_empty_and_on_settled_changelogs(
    lab: Lab, events: int
) -> None:
    engine = lab.engine()
    engine.wait_ready()
    if events:
        lab.send(flags(events, RUNS))
        assert_checkpointed(lab)
    assert engine.term() == 0
    engine.restart()
    engine.wait_ready()
    wait_for("so it says", lambda: engine.said().count("partition open") == 2 * lab.partitions)
    lab.send(flags(100, RUNS, events))
    assert_outputs(lab, events + 100)


async def test_restore_ends_though_the_changelog_closes_with_aborted_transactions(
    lab: Lab,
) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(400, RUNS))
    assert_checkpointed(lab)
    assert engine.term() == 0
    spoiler = FencedProducer(lab.settings, f"{lab.prefix}-other")
    await spoiler.start()
    raw = spoiler._handle.producer
    for _ in range(3):
        raw.begin_transaction()
        raw.produce(lab.topics.runs_changelog, b"rno", b"never", 0)
        raw.flush(10)
        raw.abort_transaction(10)
    await spoiler.close()
    engine.restart()
    engine.wait_ready()
    lab.send(flags(100, RUNS, 400))
    assert_outputs(lab, 500)
    assert_checkpointed(lab)
    assert_state(lab)


async def test_a_checkpoint_may_hold_a_part_larger_than_a_batch(lab: Lab) -> None:
    """State pages may outgrow what one event can hold; the changelog takes them."""
    producer = FencedProducer(lab.settings, f"{lab.prefix}-large")
    await producer.start()
    try:
        large = bytes(3_000_000)
        place = (lab.topics.runs_changelog, 0)
        await producer.commit({place: [(b"x-small", b"1"), (b"x-large", large)]})
    finally:
        await producer.close()
    values = {m.key(): m.value() for m in lab.read(lab.topics.runs_changelog, 0)}
    assert values[b"x-large"] == large


def test_claims_name_the_owner_in_the_changelog_and_the_owners_topic(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    owners = {
        m.key(): decode(m.value())
        for m in lab.read(lab.topics.owners, 0)
        if (m.key() or b"").isdigit()
    }
    for number in range(lab.partitions):
        claims = [m for m in lab.read(lab.topics.runs_changelog, number) if m.key() == CLAIM_KEY]
        claim = decode(claims[-1].value())
        assert isinstance(claim, Claim)
        assert owners[str(number).encode()] == claim
        assert msgspec.structs.asdict(claim)["url"].startswith("http://127.0.0.1:")
