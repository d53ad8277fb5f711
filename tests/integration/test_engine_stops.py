"""A stop that is asked for ends cleanly and in time, whatever the engine is at and whether or not
its broker answers. What no checkpoint has is read again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.integration.engine.harness import EngineProcess, Lab, flags, per_partition, wait_for
from tests.integration.engine.tiny_fold import TinyFold

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka

RUNS = 40
EVENTS = 1_000
STOP_S_MAX = 10.0
"""What the engine's own bound leaves time for; held by one case of each kind."""
STOP_TIMEOUT = "DALSEGNO_STOP_TIMEOUT_MS"
PATIENT = {STOP_TIMEOUT: "20000"}
"""For the other cases: a machine that is busy with others is no fault of theirs."""
NOTHING = 0  # the signal that only asks whether a process is there


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """One for this module: it is frozen and killed."""
    with EmbeddedKafka() as made:
        yield made


@pytest.fixture
def lab(broker: EmbeddedKafka, fresh_prefix: str, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(broker.bootstrap, fresh_prefix, tmp_path)
    wait_for("topics", lambda: created(made))
    yield made
    made.stop()
    back(broker)


def created(lab: Lab) -> bool:
    """Whether nothing has to be made any more. A broker that has just come back makes nothing for a
    moment, and does not know at once what it has made.
    """
    try:
        return not TopicAdmin(lab.settings).create((), lab.partitions)
    except KafkaException:
        return False


def back(broker: EmbeddedKafka) -> None:
    """It answers again."""
    if broker.alive:
        os.kill(broker.pid, signal.SIGCONT)
    else:
        broker.start()


def freezing(lab: Lab, broker: EmbeddedKafka, point: str, number: int, **env: str) -> EngineProcess:
    """An engine that is at the point, with its broker frozen (or whatever the signal does)."""
    mark = lab.folder / "mark"
    where = {"FREEZE_AT": point, "FREEZE_BY": str(int(number)), "FREEZE_MARK": str(mark)}
    engine = lab.engine(FREEZE_PID=str(broker.pid), **where, **env)
    if point != "rebalance":
        reached(engine, point)
    return engine


def reached(engine: EngineProcess, point: str) -> None:
    mark = engine.lab.folder / "mark"
    wait_for(point, lambda: mark.exists() or engine.process.poll() is not None)
    assert engine.process.poll() is None, engine.tail()


def assert_ends(engine: EngineProcess) -> str:
    """Cleanly and within its bound; what it said."""
    began_s = time.monotonic()
    code = engine.term(3 * STOP_S_MAX)
    took_s = time.monotonic() - began_s
    said = engine.said()
    assert "by force" not in said, said[-5_000:]
    assert code == 0, said[-5_000:]
    assert took_s < STOP_S_MAX or STOP_TIMEOUT in engine.env
    return said


def assert_nothing_lost(lab: Lab, count: int) -> None:
    """A new engine makes of the log what has to be made of it: each transition once."""
    lab.engine().wait_ready()
    want = per_partition(lab, count, RUNS)

    def made() -> bool:
        found = lab.ordered(lab.topics.transitions)
        return {n: len(kept) for n, kept in found.items() if kept} == want

    wait_for("all transitions", made)
    for report in verify(lab.settings, TinyFold, lab.partitions):
        assert report.right, report.differences


@pytest.mark.parametrize("killed", [False, True], ids=["frozen", "killed"])
def test_a_stop_while_the_broker_is_away_says_what_was_not_checkpointed_and_loses_nothing(
    lab: Lab, broker: EmbeddedKafka, killed: bool
) -> None:
    # Nothing is checkpointed before the broker is away.
    bound = PATIENT if killed else {}
    engine = lab.engine(DALSEGNO_CHECKPOINT_INTERVAL_MS="60000", **bound)
    engine.wait_ready()
    lab.send(flags(EVENTS, RUNS))
    engine.wait_caught_up()
    if killed:
        broker.kill()
    else:
        os.kill(broker.pid, signal.SIGSTOP)
    assert "final checkpoint not in time" in assert_ends(engine)
    back(broker)
    assert_nothing_lost(lab, EVENTS)


@pytest.mark.parametrize(
    "point",
    ["ping", "facts", "transactions", "owners", "layout", "identity", "data-folder", "join"],
)
def test_a_stop_during_the_start_ends_it_and_nothing_was_taken_over(
    lab: Lab, broker: EmbeddedKafka, tmp_path: Path, point: str
) -> None:
    more = {} if point == "ping" else PATIENT
    if point == "data-folder":
        more = {**more, "DALSEGNO_DATA_DIR": str(tmp_path / "data")}
    engine = freezing(lab, broker, point, signal.SIGSTOP, **more)
    assert "it has taken nothing over" in assert_ends(engine)


@pytest.mark.parametrize("point", ["fence", "claim", "tails", "changelog"])
def test_a_stop_while_partitions_are_opened_leaves_them_to_the_next_owner(
    lab: Lab, broker: EmbeddedKafka, point: str
) -> None:
    first = lab.engine()
    first.wait_ready()
    lab.send(flags(EVENTS, RUNS))
    first.wait_caught_up()
    assert first.term() == 0
    bound = {} if point == "fence" else PATIENT
    engine = freezing(lab, broker, point, signal.SIGSTOP, **bound)
    assert "partition not opened" in assert_ends(engine)
    back(broker)
    assert_nothing_lost(lab, EVENTS)


@pytest.mark.parametrize("number", [NOTHING, signal.SIGSTOP], ids=["", "frozen"])
def test_a_stop_in_the_middle_of_a_rebalance_loses_nothing(
    lab: Lab, broker: EmbeddedKafka, number: int
) -> None:
    more = {"DALSEGNO_CHECKPOINT_INTERVAL_MS": "60000"} | (PATIENT if number else {})
    engine = freezing(lab, broker, "rebalance", number, **more)
    engine.wait_ready()
    lab.send(flags(EVENTS, RUNS))
    engine.wait_caught_up()
    other = lab.engine()
    reached(engine, "rebalance")
    assert_ends(engine)
    other.kill()
    back(broker)
    assert_nothing_lost(lab, EVENTS)
