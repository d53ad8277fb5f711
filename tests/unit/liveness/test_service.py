"""The service between engine, core and broker, with both sides faked; no clock, no Kafka."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
from aiokafka.errors import KafkaConnectionError
from tests.unit.liveness.partition_world import START_MS

from dalsegno.schemas import codec
from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import RunPaused
from dalsegno.schemas.liveness import Canary, Heartbeat, Held, Hello, Mark
from dalsegno.streams.agents.liveness import LivenessService
from dalsegno.streams.agents.liveness_broker import Ends, KafkaLivenessBroker
from dalsegno.streams.agents.liveness_watch import PartitionWatch
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.sequence import Sequence as Place
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.monitor import RawRecord
from dalsegno.streams.engine.settings import EngineSettings


@dataclass
class FakeHost:
    number: int = 0
    events_offset: int = 0
    log_ms: int = START_MS
    appended: list[StallSuspected] = field(default_factory=list)
    refusals: int = 0

    batches: list[int] = field(default_factory=list)

    async def append_verdicts(self, verdicts: Sequence[StallSuspected]) -> list[int]:
        if self.refusals:
            self.refusals -= 1
            raise OutcomeUnknownError("no answer")
        self.batches.append(len(verdicts))
        self.appended.extend(verdicts)
        return list(range(self.events_offset, self.events_offset + len(verdicts)))

    def caught_up(self) -> bool:
        return True


@dataclass
class FakeBroker:
    canaries: list[Canary] = field(default_factory=list)
    at_end: dict[int, Ends] = field(default_factory=dict)
    committed: list[Mark] = field(default_factory=list)
    asked: list[tuple[str, set[int]]] = field(default_factory=list)
    away: bool = False

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def canary(self, canary: Canary) -> None:
        self.canaries.append(canary)

    async def ends(self, partitions: Collection[int]) -> dict[int, Ends]:
        if self.away:
            raise KafkaConnectionError("away")
        return {number: self.at_end[number] for number in partitions}

    async def marks(self, queue: str, partitions: Collection[int]) -> list[Mark]:
        self.asked.append((queue, set(partitions)))
        return self.committed


class Rig:
    """One partition, its watch, and the log of its heartbeats."""

    def __init__(self, **settings: str) -> None:
        self.host, self.broker = FakeHost(), FakeBroker()
        self.now_s = 0.0
        self.service = LivenessService(
            EngineSettings.model_validate({"name": "e1", **settings}),
            connect=lambda _: self.broker,
            clock=lambda: self.now_s,
        )
        self.watch: PartitionWatch = self.service(self.host)
        self.at_ms, self.offset = START_MS, 0

    def put(self, *records: msgspec.Struct, read: bool = True) -> None:
        raws = []
        for record in records:
            raws.append(RawRecord(self.offset, self.at_ms, b"", codec.encode(record), ()))
            self.offset += 1
        if read:
            self.watch.heartbeats(raws, self.offset)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 250):
            self.at_ms += 250
            self.put(Canary(partition=0, monitor="e1", number=self.offset))
        self.host.log_ms = self.at_ms

    def start(self, run: str = "r", **more: object) -> None:
        fields = {"running": True, "worker": "w", "incarnation": 7, "heartbeat_ms": 1_000, **more}
        attempt = Attempt(
            run_id=run,
            step="s",
            epoch=1,
            step_type="f/s",
            queue="q",
            since_ms=self.at_ms,
            timeout_ms=0,
            **fields,  # type: ignore[arg-type]
        )
        self.host.events_offset += 1
        self.watch.attempts([((run, "s"), attempt)])

    def ends(self) -> None:
        self.broker.at_end[0] = Ends(self.host.events_offset, self.offset)

    async def judge(self) -> list[Verdict]:
        """One round; waits for what it appends."""
        before = len(self.host.appended)
        await self.service.judge(self.broker)
        await self.settle()
        return [event.verdict for event in self.host.appended[before:]]

    async def settle(self) -> None:
        if self.watch._saying is not None:
            await self.watch._saying


async def test_a_silent_step_becomes_a_verdict_once_both_logs_are_read() -> None:
    rig = Rig()
    rig.start()
    rig.put(Canary(partition=0, monitor="e1", number=0))
    rig.pass_ms(11_000)
    rig.ends()
    rig.broker.at_end[0] = Ends(rig.host.events_offset + 1, rig.offset)
    assert await rig.judge() == []
    rig.host.events_offset += 1
    rig.watch.attempts([])
    await rig.settle()
    assert [type(event) for event in rig.host.appended] == [StallSuspected]
    await rig.watch.close()


@pytest.mark.parametrize(("detector", "after_13_s"), [("learned", [Verdict.SILENT]), ("fixed", [])])
async def test_the_settings_choose_how_long_a_step_may_be_silent(
    detector: str, after_13_s: list[Verdict]
) -> None:
    rig = Rig(stall_detector=detector)
    rig.start(heartbeat_ms=2_000)
    rig.put(Canary(partition=0, monitor="e1", number=0))
    rig.pass_ms(13_000)
    rig.ends()
    assert await rig.judge() == after_13_s
    rig.pass_ms(8_000)
    rig.ends()
    await rig.judge()
    assert {event.verdict for event in rig.host.appended} == {Verdict.SILENT}
    await rig.watch.close()


async def test_a_step_that_completed_before_the_ends_is_not_judged() -> None:
    rig = Rig()
    rig.start()
    rig.put(Canary(partition=0, monitor="e1", number=0))
    rig.pass_ms(11_000)
    rig.broker.at_end[0] = Ends(rig.host.events_offset + 1, rig.offset)
    assert await rig.judge() == []
    rig.host.events_offset += 1
    rig.watch.attempts([(("r", "s"), None)], {("r", "s")})
    await rig.settle()
    assert rig.host.appended == []
    await rig.watch.close()


@pytest.mark.parametrize(("completed", "said"), [(True, []), (False, [Verdict.SILENT])])
async def test_only_what_completed_teaches_how_long_a_step_may_be_quiet(
    completed: bool, said: list[Verdict]
) -> None:
    rig = Rig()
    rig.put(Canary(partition=0, monitor="e1", number=0))
    for n in range(3):
        rig.start(f"r{n}")
        rig.pass_ms(9_000)
        key = (f"r{n}", "s")
        rig.watch.attempts([(key, None)], {key} if completed else ())
    rig.start("new")
    rig.pass_ms(12_000)
    rig.ends()
    assert await rig.judge() == said
    await rig.watch.close()


async def test_a_hello_hurries_the_next_round() -> None:
    rig = Rig()
    rig.start()
    assert not rig.service._hurry.is_set()
    rig.put(Hello(partition=0, worker="w", incarnation=9, host="h"))
    assert rig.service._hurry.is_set()
    rig.ends()
    assert await rig.judge() == [Verdict.REPLACED]
    await rig.watch.close()


async def test_a_verdict_that_could_not_be_appended_is_said_again() -> None:
    rig = Rig()
    rig.start()
    rig.put(Hello(partition=0, worker="w", incarnation=9, host="h"))
    rig.ends()
    rig.host.refusals = 1
    assert await rig.judge() == []
    assert await rig.judge() == [Verdict.REPLACED]
    assert await rig.judge() == []
    assert rig.watch.figures().verdicts == {"replaced": 1}
    await rig.watch.close()


async def test_what_one_hello_proves_is_appended_together() -> None:
    rig = Rig()
    for n in range(70):
        rig.start(f"r{n}")
    rig.put(Hello(partition=0, worker="w", incarnation=9, host="h"))
    rig.ends()
    assert await rig.judge() == [Verdict.REPLACED] * 70
    assert rig.host.batches == [70]
    assert len({event.run_id for event in rig.host.appended}) == 70
    await rig.watch.close()


async def test_a_replaced_verdict_that_a_report_outran_is_said_again_at_the_next_question() -> None:
    rig = Rig()
    rig.start()
    rig.put(Hello(partition=0, worker="w", incarnation=9, host="h"))
    rig.ends()
    assert await rig.judge() == [Verdict.REPLACED]
    rig.host.events_offset += 2  # the report, and the verdict that it outran: the attempt stands
    rig.ends()
    assert await rig.judge() == [Verdict.REPLACED]
    assert rig.host.appended[-1].events_offset == rig.host.events_offset
    rig.watch.attempts([(("r", "s"), None)])
    rig.host.events_offset += 1
    assert await rig.judge() == []
    await rig.watch.close()


async def test_marks_are_read_for_the_queues_that_need_them_and_reach_their_partition() -> None:
    rig = Rig()
    await rig.service.read_marks(rig.broker)
    assert rig.broker.asked == []
    rig.start(
        running=False,
        worker="",
        incarnation=0,
        sequence=Place(5, 0, 1),
        start_by_ms=START_MS + 30_000,
    )
    rig.pass_ms(3_000)
    rig.broker.committed = [
        Mark(queue="q", partition=n, offset=9, index=0, worker="w", incarnation=7) for n in (0, 1)
    ]
    await rig.service.read_marks(rig.broker)
    assert rig.broker.asked == [("q", {0})]
    rig.pass_ms(30_000)
    rig.ends()
    assert await rig.judge() == [Verdict.LOST]
    await rig.watch.close()


async def test_a_record_that_cannot_be_read_costs_only_itself() -> None:
    rig = Rig()
    rig.start()
    rig.watch.heartbeats([RawRecord(0, rig.at_ms, b"", b"\x00junk", ())], 1)
    rig.put(Heartbeat(partition=5, worker="w", incarnation=7, held=()))
    rig.put(RunPaused(run_id="r", request_id="1"))
    beat = Held(run_id="r", step="s", epoch=1)
    rig.put(Heartbeat(partition=0, worker="w", incarnation=7, held=(beat,)))
    assert rig.watch.figures().unread == 3
    assert rig.watch.figures().strays == 0
    await rig.watch.close()


async def test_each_watched_partition_gets_a_canary_and_a_deaf_monitor_shows() -> None:
    """R126: a monitor that hears nothing of itself must not look well."""
    rig = Rig()
    await rig.service.send_canaries(rig.broker)
    assert [canary.partition for canary in rig.broker.canaries] == [0]
    rig.now_s = 10.0
    assert rig.watch.figures().canary_age_s == 10.0
    rig.put(rig.broker.canaries[0])
    assert rig.watch.figures().canary_age_s == 0.0
    await rig.watch.close()
    await rig.service.send_canaries(rig.broker)
    assert len(rig.broker.canaries) == 1


async def test_a_broker_that_is_away_delays_a_verdict_and_loses_none() -> None:
    rig = Rig()
    rig.start()
    rig.put(Hello(partition=0, worker="w", incarnation=9, host="h"))
    rig.ends()
    rig.broker.away = True
    with pytest.raises(KafkaConnectionError):
        await rig.judge()
    rig.broker.away = False
    assert await rig.judge() == [Verdict.REPLACED]
    await rig.watch.close()


async def test_a_canary_that_was_never_sent_keeps_no_other_back() -> None:
    """The monitor would be deaf until the engine is started again."""
    broker = KafkaLivenessBroker(EngineSettings(bootstrap_servers="127.0.0.1:1"))
    sent: list[object] = []

    def produce(*_: object, **__: object) -> None:
        sent.append(None)
        if len(sent) == 1:
            raise BufferError("Local: Queue full")

    broker._producer = SimpleNamespace(poll=lambda _: None, produce=produce)  # type: ignore[assignment]
    with pytest.raises(BufferError):
        await broker.canary(Canary(partition=0, monitor="e1", number=1))
    await broker.canary(Canary(partition=0, monitor="e1", number=2))
    await broker.canary(Canary(partition=0, monitor="e1", number=3))
    assert len(sent) == 2, "the second one is on its way"
    for stop in (broker._consumer.stop, broker._admin.close):
        await stop()
