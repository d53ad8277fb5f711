"""A broker that is away is said once a minute, not at each try of each client."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.client.lab import wait_for

from dalsegno.client import ClientConfig
from dalsegno.streams.client.kafka_log import LOGGER, BrokerAway

REFUSED = "[thrd:it]: %s/bootstrap: Connect to ipv4#%s failed: Connection refused (after 0ms in %s)"


class Log:
    """Lines as the binding logs them, through the filter, and the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: list[logging.LogRecord] = []
        self._filter = BrokerAway(60.0, lambda: self.now_s)

    def line(self, facility: str, text: str) -> None:
        record = logging.LogRecord(
            LOGGER, logging.ERROR, "", 0, "%s [%s] %s", (facility, "rdkafka#producer-1", text), None
        )
        if self._filter.filter(record):
            self.said.append(record)

    def refused(self, broker: str = "a:1") -> None:
        self.line("FAIL", REFUSED % (broker, broker, "state CONNECT"))

    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.said]


def test_the_same_trouble_is_one_warning_a_minute_with_how_often_it_was() -> None:
    log = Log()
    for _ in range(100):
        log.refused()
        log.now_s += 0.1
    (said,) = log.texts()
    assert said == (
        "broker a:1 does not answer: Connect to ipv4#a:1 failed: Connection refused; "
        "tried again until it does (0 more such lines)"
    )
    assert log.said[0].levelno == logging.WARNING
    assert log.said[0].broker == "a:1"  # type: ignore[attr-defined]
    log.now_s = 60.0
    log.refused()
    assert "(99 more such lines)" in log.texts()[1]


def test_another_broker_and_another_trouble_are_said_by_themselves() -> None:
    log = Log()
    log.refused("a:1")
    log.refused("b:2")
    log.line("FAIL", "[thrd:it]: a:1/1: Disconnected (after 5 ms in state UP)")
    log.line("ERROR", "[thrd:it]: 2/2 brokers are down")
    assert len(log.said) == 3


def test_whatever_else_is_said_passes_as_it_is() -> None:
    log = Log()
    log.line("MAXPOLL", "[thrd:main]: Application maximum poll interval (300000ms) exceeded by 1ms")
    log.line("FAIL", "[thrd:main]: no address in this one")
    assert [record.levelno for record in log.said] == [logging.ERROR] * 2
    assert "MAXPOLL" in log.texts()[0]


def test_real_clients_without_a_broker_say_one_line(caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig("127.0.0.1:1")
    producer = Producer(config.producer("p"))
    consumer = Consumer(config.reader("c"))
    tried = [0]

    def tries() -> bool:
        """Many rounds of what both are about; each logs from within its poll."""
        producer.poll(0.02)
        consumer.poll(0.02)
        tried[0] += 1
        return bool(caplog.records) and tried[0] > 50

    with caplog.at_level(logging.DEBUG, LOGGER):
        wait_for("a line", tries)
    consumer.close()
    mine = [record for record in caplog.records if "127.0.0.1:1 " in record.getMessage()]
    assert len(mine) <= 1
    assert {record.levelno for record in mine} <= {logging.WARNING}
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]
