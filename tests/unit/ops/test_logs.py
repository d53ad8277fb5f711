"""Log lines: one per event, as JSON for machines, without what repeats."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

from dalsegno.ops.logs import configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the lines go; the process's own logging is put back afterwards."""
    root = logging.getLogger()
    client = logging.getLogger("dalsegno.client.kafka")
    handlers, level, propagate = root.handlers[:], root.level, client.propagate
    client.propagate = True  # a short command of another test may have silenced it
    out = io.StringIO()
    configure("info", out, json=True)
    yield out
    root.handlers[:], root.level, client.propagate = handlers, level, propagate
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_both_kinds_of_loggers_end_in_one_shape(stream: io.StringIO) -> None:
    structlog.get_logger("ours").info("partition open", partition=3)
    logging.getLogger("theirs").warning("slow %s", "disk")
    ours, theirs = lines(stream)
    assert (ours["event"], ours["partition"], ours["level"]) == ("partition open", 3, "info")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "slow disk",
        "warning",
        "theirs",
    )
    assert "timestamp" in ours
    assert "timestamp" in theirs


def test_an_error_carries_its_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger("ours").exception("failed")
    assert "ValueError: why" in str(lines(stream)[0]["exception"])


def test_below_the_level_nothing_is_said(stream: io.StringIO) -> None:
    structlog.get_logger("ours").debug("detail")
    logging.getLogger("faust.worker").info("chatter")
    logging.getLogger("ours").info("[^-App]: Starting...")
    assert lines(stream) == []


def test_a_broker_that_is_away_is_told_of_once(stream: io.StringIO) -> None:
    kafka = logging.getLogger("dalsegno.client.kafka")
    for attempt in range(50):
        kafka.error("FAIL [thrd:a]: connection refused (after %dms in state CONNECT)", attempt)
    kafka.error("FAIL [thrd:b]: connection refused (after 1ms in state CONNECT)")
    assert len(lines(stream)) == 2


def test_the_threads_of_several_clients_may_log_at_once(stream: io.StringIO) -> None:
    """A line that raised would end the thread that said it."""
    client = logging.getLogger("dalsegno.client.kafka")
    before = sys.getswitchinterval()

    def say(thread: int) -> None:
        for line in range(500):
            client.warning("trouble %d of thread %d", line, thread)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(say, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(lines(stream)) == 2_000
