"""A worker on a real Kafka, with handoffs by hand: what it starts, what it never starts, what it
says.
"""

from __future__ import annotations

import asyncio
import threading

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.fixtures import lab  # noqa: F401
from tests.integration.client.lab import LIMIT_S, PARTITIONS, Lab, wait_for
from tests.integration.engine.strangers import send_bad_header_name

from dalsegno.client import (
    BlockingContext,
    Context,
    Flow,
    MissingInfo,
    StepStopped,
    WorkerFenced,
)
from dalsegno.schemas import values
from dalsegno.schemas.events import StepCompleted, StepFailed, StepReleased, StepStarted
from dalsegno.schemas.liveness import Heartbeat, Hello
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.client.marks import parse_mark

pytestmark = pytest.mark.kafka


class Bodies:
    """A flow whose bodies are watched and, if the test wants, held."""

    def __init__(self) -> None:
        self.flow = Flow("f")
        self.begun: list[tuple[str, int]] = []
        self.contexts: dict[str, Context] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.stopped: list[str] = []
        self.flow.step(name="quick", reads=["a"], writes=["x"])(self.quick)
        self.flow.step(name="plain", reads=["a"], writes=["x"], queue="other")(self.plain)
        self.flow.step(name="held", reads=[], writes=[])(self.hold)
        self.flow.step(name="fails", reads=["a"], writes=[])(self.fail)

    async def quick(self, ctx: Context) -> dict[str, object]:
        self.begun.append((ctx.run_id, ctx.epoch))
        self.contexts[ctx.run_id] = ctx
        return {"x": ctx["a"]}

    def plain(self, ctx: BlockingContext) -> dict[str, object]:
        self.begun.append((ctx.run_id, ctx.epoch))
        return {"x": ctx.effect("double", lambda a: a * 2, ctx["a"])}

    async def hold(self, ctx: Context) -> None:
        self.begun.append((ctx.run_id, ctx.epoch))
        self.contexts[ctx.run_id] = ctx
        ctx.progress()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped.append(ctx.run_id)
            raise

    async def fail(self, ctx: Context) -> None:
        if ctx["a"] == "missing":
            raise MissingInfo(["income"])
        if ctx["a"] == "undeclared":
            ctx["b"]
        raise OSError("disk")


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


def test_a_step_is_reported_started_before_its_body_and_completed_after_it(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "quick", inputs={"a": 5}), trace=trace)
    lab.hand(lab.make("p", "plain", inputs={"a": 4}), queue="other")
    lab.wait_kinds("r", "StepStarted", "StepCompleted")
    lab.wait_kinds("p", "StepStarted", "EffectIntended", "EffectConfirmed", "StepCompleted")
    (done,) = lab.events("r", StepCompleted)
    assert values.unpack(done.ops) == [["set", ["x"], 5]]  # type: ignore[attr-defined]
    # type: ignore[attr-defined]
    assert values.unpack(lab.events("p", StepCompleted)[0].ops) == [["set", ["x"], 8]]
    assert bodies.contexts["r"].traceparent == trace


def test_a_record_in_the_queue_whose_header_has_no_name_costs_only_itself(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    queue = lab.topics.queue("default")
    for number in range(PARTITIONS):
        asyncio.run(send_bad_header_name(lab.bootstrap, queue, number))
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "quick", inputs={"a": 1}))
    lab.wait_kinds("r", "StepStarted", "StepCompleted")


def test_the_hello_comes_first_and_its_offset_is_the_incarnation(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    worker = lab.worker(bodies.flow)
    lab.hand(lab.make("r", "quick", inputs={"a": 1}))
    lab.wait_kinds("r", "StepStarted", "StepCompleted")

    def said() -> list[Hello]:
        return [h for h in lab.read(lab.topics.heartbeats) if isinstance(h, Hello)]

    hellos = wait_for("all hellos", lambda: len(said()) == PARTITIONS + 1 and said())
    home = partition_for(f"{lab.prefix}-w", PARTITIONS)
    first = next(h for h in hellos if h.incarnation == -1)
    rest = [h for h in hellos if h.incarnation != -1]
    assert first.partition == home
    assert sorted(h.partition for h in rest) == list(range(PARTITIONS))
    (started,) = lab.events("r", StepStarted)
    assert {h.incarnation for h in rest} == {started.incarnation}  # type: ignore[attr-defined]
    lab.stop(worker)
    lab.worker(bodies.flow)

    def again() -> list[Hello]:
        found = [h for h in lab.read(lab.topics.heartbeats) if isinstance(h, Hello) and h.marks]
        # type: ignore[attr-defined]
        return [h for h in found if h.incarnation > started.incarnation]

    (hello,) = wait_for("a hello with the marks found", again)
    (mark,) = hello.marks
    assert (mark.worker, mark.partition, mark.offset) == (
        f"{lab.prefix}-w",
        partition_for("r", PARTITIONS),
        lab.sequence,
    )


def test_the_commit_carries_the_mark_before_anything_starts(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    lab.worker(bodies.flow)
    sequence = lab.hand(lab.make("r", "held"))
    lab.wait_kinds("r", "StepStarted")
    topic = lab.topics.queue("default")
    reader = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": topic})
    (place,) = reader.committed(
        [TopicPartition(topic, partition_for("r", PARTITIONS))], timeout=LIMIT_S
    )
    reader.close()
    mark = parse_mark(place.metadata, "default", place.partition)
    assert mark is not None
    assert (place.offset, mark.offset, mark.worker) == (1, sequence, f"{lab.prefix}-w")


def test_repeats_are_dropped_by_mark_and_by_epoch_also_after_a_restart(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    worker = lab.worker(bodies.flow)
    handoff = lab.make("r", "quick", inputs={"a": 1})
    sequence = lab.hand(handoff)
    lab.hand(handoff, sequence=sequence)  # the same record once more
    lab.hand(handoff)  # the same epoch under another sequence
    last = lab.hand(lab.make("r", "quick", epoch=2, inputs={"a": 1}))
    wait_for("epoch 2", lambda: ("r", 2) in bodies.begun)
    lab.stop(worker)
    lab.worker(bodies.flow)
    lab.hand(handoff, sequence=last)  # a repeat for the restarted worker: its mark says so
    lab.hand(lab.make("r", "quick", epoch=3, inputs={"a": 1}))
    wait_for("epoch 3", lambda: ("r", 3) in bodies.begun)
    assert bodies.begun == [("r", 1), ("r", 2), ("r", 3)]


def test_what_is_acknowledged_too_late_is_neither_started_nor_released(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However slow the machine is, the first one is not so late that its start is not even sent.
    monkeypatch.setattr("dalsegno.streams.client.session._SURELY_LATE_MS", 50_000)
    worker = lab.worker(bodies.flow)
    lab.hand(lab.make("late", "quick", inputs={"a": 1}, start_in_ms=0))
    lab.hand(lab.make("long-past", "quick", inputs={"a": 1}, start_in_ms=-600_000))
    lab.hand(lab.make("good", "quick", inputs={"a": 1}))
    wait_for("both late ones seen", lambda: worker.counts.late == 2)
    lab.wait_kinds("good", "StepStarted", "StepCompleted")
    assert bodies.begun == [("good", 1)]
    lab.wait_kinds("late", "StepStarted")
    assert lab.kinds("long-past") == []


def test_a_step_that_nobody_here_can_run_is_given_back(lab: Lab, bodies: Bodies) -> None:  # noqa: F811
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "quick", flow_version=2))
    lab.wait_kinds("r", "StepReleased")
    (released,) = lab.events("r", StepReleased)
    # type: ignore[attr-defined]
    assert (released.epoch, released.reason) == (1, "no_compatible_worker")


@pytest.mark.parametrize(
    ("value", "kind", "error_class"),
    [
        ("missing", "missing_info", "MissingInfo"),
        ("undeclared", "invalid", "UndeclaredRead"),
        ("other", "transient", "OSError"),
    ],
)
def test_failures_are_reported_by_the_return_contract(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
    value: str,
    kind: str,
    error_class: str,
) -> None:
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "fails", inputs={"a": value}))
    lab.wait_kinds("r", "StepStarted", "StepFailed")
    (failed,) = lab.events("r", StepFailed)
    assert failed.failure_type == kind  # type: ignore[attr-defined]
    assert failed.error_class.split(".")[-1] == error_class  # type: ignore[attr-defined]


def test_a_superseded_attempt_is_told_to_stop_and_reports_nothing(
    lab: Lab,  # noqa: F811
    bodies: Bodies,
) -> None:
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "held"))
    lab.hand(lab.make("other", "held"))
    wait_for("both running", lambda: len(bodies.begun) == 2)
    (started,) = wait_for("its start", lambda: lab.events("r", StepStarted))
    lab.answer(
        Answer(
            reply_to=started.reply_to,  # type: ignore[attr-defined]
            run_id="r",
            answer=AnswerType.SUPERSEDED,
            step="held",
            epoch=1,
            kind="StepStarted",
            current_epoch=2,
        )
    )
    wait_for("stopped", lambda: bodies.stopped == ["r"])
    assert bodies.contexts["r"].cancelled
    assert not bodies.contexts["other"].cancelled
    with pytest.raises(StepStopped):
        asyncio.run(bodies.contexts["r"].effect("too-late", print))
    lab.wait_kinds("r", "StepStarted")


def test_heartbeats_tell_what_is_held_with_its_progress(lab: Lab, bodies: Bodies) -> None:  # noqa: F811
    lab.worker(bodies.flow)
    lab.hand(lab.make("r", "held"))

    def beats() -> list[Heartbeat]:
        found = [h for h in lab.read(lab.topics.heartbeats) if isinstance(h, Heartbeat)]
        return [h for h in found if any(held.progress == 1 for held in h.held)]

    beat = wait_for("a heartbeat with progress", beats)[0]
    assert [(h.run_id, h.step, h.epoch) for h in beat.held] == [("r", "held", 1)]
    assert beat.partition == partition_for("r", PARTITIONS)


def test_a_fenced_worker_abandons_everything_and_ends(lab: Lab, bodies: Bodies) -> None:  # noqa: F811
    worker = lab.worker(bodies.flow)
    lab.hand(lab.make("r", "held"))
    wait_for("running", lambda: bodies.begun)
    topic = lab.topics.queue("default")
    usurper = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "group.id": topic,
            "group.instance.id": f"{lab.prefix}-w",
            "partition.assignment.strategy": "range",
        }
    )
    usurper.subscribe([topic])
    wait_for("fenced", lambda: usurper.poll(0.05) or worker.errors)  # type: ignore[attr-defined]
    wait_for("ended", lambda: worker.errors)  # type: ignore[attr-defined]
    usurper.close()
    assert isinstance(worker.errors[0], WorkerFenced)  # type: ignore[attr-defined]
    assert bodies.stopped == ["r"]
    lab.wait_kinds("r", "StepStarted")


def test_no_more_is_taken_than_there_are_free_slots(lab: Lab, bodies: Bodies) -> None:  # noqa: F811
    worker = lab.worker(bodies.flow, concurrency=2)
    for number in range(5):
        lab.hand(lab.make(f"r{number}", "held"))
    wait_for("two running", lambda: len(bodies.begun) == 2)
    topic = lab.topics.queue("default")
    reader = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": topic})
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    taken = sum(max(0, place.offset) for place in reader.committed(asked, timeout=LIMIT_S))
    reader.close()
    assert taken == 2
    assert worker.counts.started == 2


def test_a_graceful_stop_lets_running_steps_end_and_takes_nothing_more(lab: Lab) -> None:  # noqa: F811
    flow = Flow("f")
    begun, finish = threading.Event(), threading.Event()

    @flow.step(reads=[], writes=["x"])
    def slow(ctx: BlockingContext) -> dict[str, object]:
        begun.set()
        finish.wait(20)
        return {"x": 1}

    worker = lab.worker(flow)
    lab.hand(lab.make("r", "slow"))
    assert begun.wait(20)
    worker.stop()
    wait_for("no longer taking", lambda: not worker.ready.is_set())
    lab.hand(lab.make("after", "slow"))
    finish.set()
    lab.stop(worker)
    lab.wait_kinds("r", "StepStarted", "StepCompleted")
    assert lab.kinds("after") == []
