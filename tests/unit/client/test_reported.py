"""Steps that a service drives by itself are alive from their start to their end, and no longer."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

import pytest

from dalsegno.client import ReportRefused, StepFailure
from dalsegno.schemas import codec
from dalsegno.schemas.events import AttemptEvent, StepProgressed, StepStarted
from dalsegno.schemas.liveness import Heartbeat
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.producer import Done, OutRecord, Receipt
from dalsegno.streams.client.report import Report
from dalsegno.streams.client.reported import ReportedSteps


@dataclass
class Lab:
    """Stands for the producer. Without `threaded`, heartbeats come when the test says so."""

    threaded: bool = False
    most: int = 100
    now_s: float = 100.0
    sent: list[OutRecord] = field(default_factory=list)
    events: list[AttemptEvent] = field(default_factory=list)
    fails: DeliveryFailed | None = None
    came: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        clocks = Clocks(lease_s=lambda: self.now_s, wall_ms=lambda: 5)
        # type: ignore[arg-type]
        self.steps = ReportedSteps(self, "heartbeats", "billing-1", clocks, self.most)
        if not self.threaded:
            self.steps.heartbeats.start = lambda: None  # type: ignore[method-assign]

    def send(self, record: OutRecord, done: Done) -> None:
        self.sent.append(record)
        done(Receipt(record.topic, record.partition, 0, 0), None)
        self.came.set()

    def report(self, run_id: str = "r", attempt: int = 1, partition: int = 0) -> Report:
        def log(event: AttemptEvent) -> Receipt:
            if self.fails is not None:
                raise self.fails
            self.events.append(event)
            return Receipt("events", partition, len(self.events), 0)

        return Report(run_id, attempt, log, "billing-1", self.steps)

    def tick(self) -> list[Heartbeat]:
        self.sent.clear()
        self.now_s += 1.0
        self.steps.heartbeats.tick()
        found = [codec.decode(record.value) for record in self.sent]
        return [each for each in found if isinstance(each, Heartbeat)]

    def alive(self) -> list[tuple[str, str, int]]:
        return [(h.run_id, h.step, h.progress) for beat in self.tick() for h in beat.held]

    def tell(self, answer: AnswerType, reason: str = "silent", kind: str = "") -> None:
        self.steps.tell(
            Answer(reply_to="c", run_id="r", step="a", answer=answer, reason=reason, kind=kind)
        )


def test_heartbeats_say_what_the_start_said_in_one_record_per_partition() -> None:
    lab = Lab()
    lab.report("r").started("a")
    lab.report("r").started("b")
    lab.report("q", partition=3).started("a")
    first, second = lab.tick()
    started = lab.events[0]
    assert isinstance(started, StepStarted)
    assert (first.worker, first.incarnation) == (started.worker, started.incarnation)
    assert [(h.run_id, h.step, h.epoch) for h in first.held] == [("r", "a", 0), ("r", "b", 0)]
    assert (first.partition, second.partition) == (0, 3)


def test_the_end_of_the_attempt_ends_its_heartbeats() -> None:
    lab = Lab()
    report = lab.report()
    for step in "abc":
        report.started(step)
    report.completed("a")
    report.failed("b", StepFailure("no"))
    assert lab.alive() == [("r", "c", 0)]


@pytest.mark.parametrize("error", [None, RuntimeError("the service is broken")])
def test_a_step_that_its_block_left_open_is_alive_no_more(error: Exception | None) -> None:
    lab = Lab()

    def body() -> None:
        with lab.report() as report:
            report.started("a")
            assert lab.alive() == [("r", "a", 0)]
            if error is not None:
                raise error

    if error is None:
        body()
    else:
        with pytest.raises(RuntimeError):
            body()
    assert lab.alive() == []
    assert [type(event) for event in lab.events] == [StepStarted]


def test_progress_goes_along_and_only_grows() -> None:
    lab = Lab()
    report = lab.report()
    report.started("a")
    report.started("b")
    report.progress()
    report.progress("b")
    report.progressed("a")
    assert isinstance(lab.events[-1], StepProgressed)
    assert lab.events[-1].progress == 2
    report.started("a")  # sent again: the same attempt
    assert lab.alive() == [("r", "a", 2), ("r", "b", 2)]
    lab.report().progress("a")  # another report on the same attempt
    assert lab.alive()[0] == ("r", "a", 3)


def test_nothing_is_alive_before_the_log_has_its_start_and_until_it_has_its_end() -> None:
    lab = Lab()
    report = lab.report()
    lab.fails = DeliveryFailed("events", b"r", "_MSG_TIMED_OUT", "")
    with pytest.raises(DeliveryFailed):
        report.started("a")
    assert lab.alive() == []
    lab.fails = None
    report.started("a")
    lab.fails = DeliveryFailed("events", b"r", "_MSG_TIMED_OUT", "")
    with pytest.raises(DeliveryFailed):
        report.completed("a")
    assert lab.alive() == [("r", "a", 0)]


def test_a_next_attempt_takes_over_and_the_one_before_ends_nothing() -> None:
    lab = Lab()
    first, second = lab.report(), lab.report(attempt=2)
    first.started("a")
    first.progress()
    second.started("a")
    lab.tell(AnswerType.SUPERSEDED, "newer_attempt")  # about the first
    first.failed("a", StepFailure("late"))
    first.started("a")
    assert lab.alive() == [("r", "a", 0)]
    second.completed("a")
    assert lab.alive() == []


@pytest.mark.parametrize(
    ("says", "reason", "kind", "stops"),
    [
        (AnswerType.SUPERSEDED, "silent", "", True),
        (AnswerType.SUPERSEDED, "newer_attempt", "", True),
        (AnswerType.CANCELLED, "cancelled", "", True),
        (AnswerType.REFUSED, "wrong_key", "EffectIntended", False),
        (AnswerType.SUPERSEDED, "older_attempt", "StepProgressed", False),
    ],
)
def test_a_step_that_is_taken_away_is_alive_no_more(
    says: AnswerType, reason: str, kind: str, stops: bool
) -> None:
    lab = Lab()
    lab.report().started("a")
    lab.tell(says, reason, kind)
    assert (lab.alive() == []) is stops


def test_what_is_alive_is_bounded_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(most=2)
    reports = [lab.report(f"r{number}") for number in range(4)]
    with caplog.at_level(logging.WARNING, "dalsegno.client"):
        for report in reports:
            report.started("a")
    assert [run_id for run_id, _, _ in lab.alive()] == ["r0", "r1"]
    assert len(caplog.records) == 1
    reports[0].completed("a")
    reports[3].started("a")
    assert [run_id for run_id, _, _ in lab.alive()] == ["r1", "r3"]


def test_a_close_ends_the_thread_and_may_be_repeated() -> None:
    lab = Lab(threaded=True)
    lab.report().started("a")
    assert lab.came.wait(10.0)
    lab.steps.close()
    lab.steps.close()
    assert "billing-1-heartbeats" not in [thread.name for thread in threading.enumerate()]
    lab.report("q").started("a")  # no error, and no thread
    Lab().steps.close()  # one that never began


def test_a_refusal_is_what_the_client_raises_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from dalsegno.client import Client
    from dalsegno.streams.client import client as module

    monkeypatch.setattr(Client, "_connect", lambda _self: None)
    monkeypatch.setattr(module, "partition_for", lambda _run_id, _count: 0)
    monkeypatch.setattr(
        module.Producer, "deliver", lambda _self, record, _s: Receipt(record.topic, 0, 0, 0)
    )
    with Client(bootstrap_servers="127.0.0.1:1", name="c") as client:
        client._under_way.heartbeats.start = lambda: None  # type: ignore[method-assign]
        client._under_way.heartbeats.stop = lambda **_: None  # type: ignore[method-assign]
        report = client.report("r")
        report.started("a")
        assert client._under_way.find("r", "a", 1) is not None
        client._outcomes.tell(
            Answer(
                reply_to="c",
                run_id="r",
                step="a",
                answer=AnswerType.REFUSED,
                kind="StepStarted",
                reason="unknown_step",
            )
        )
        with pytest.raises(ReportRefused):
            report.progressed("a")
        assert client._under_way.find("r", "a", 1) is None
