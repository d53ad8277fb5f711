"""Log lines of the Kafka clients: a broker that is away is said once a minute, not at each try.

librdkafka logs every refused connection of every client as an error, and tries again within a
second for as long as the broker is away: a worker has several clients.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

LOGGER: Final = "dalsegno.client.kafka"
EVERY_S: Final = 60.0
"""How often the same trouble with the same broker is said."""

_FORM: Final = "%s [%s] %s"
"""Of the binding's lines: facility, client, text."""
_KINDS_MAX: Final = 256
"""Brokers and troubles that are told apart; beyond that all are forgotten and said again."""
_TROUBLE: Final = re.compile(
    r"(?P<broker>[^\s/]+:\d+)/\w+: (?P<what>.*?)(?: \(after .*)?$", re.DOTALL
)
_ALL_DOWN: Final = "brokers are down"


class BrokerAway(logging.Filter):
    """One warning per broker and trouble in `every_s`, with how many more there were. Lines about
    anything else pass as they are. Thread-safe.
    """

    def __init__(
        self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is said; one that is says it in our words."""
        if record.msg != _FORM or not isinstance(record.args, tuple):
            return True
        facility, _, text = map(str, record.args)
        if facility == "ERROR" and _ALL_DOWN in text:
            return False  # what is wrong with each of them is said by itself
        found = _TROUBLE.search(text) if facility == "FAIL" else None
        if found is None:
            return True
        broker, what = found["broker"], found["what"]
        more = self._more(broker, what)
        if more is None:
            return False
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.msg = "broker %s does not answer: %s; tried again until it does (%d more such lines)"
        record.args = (broker, what, more)
        record.broker = broker
        return True

    def _more(self, broker: str, what: str) -> int | None:
        """How many were kept back since it was last said; None if it is not time to say it."""
        # Without the address, which is another one at each of a broker's names.
        key, now_s = (broker, what.rpartition(": ")[2]), self._clock()
        with self._lock:
            said_s, more = self._said.get(key, (now_s - self._every_s, 0))
            if now_s - said_s < self._every_s:
                self._said[key] = said_s, more + 1
                return None
            if len(self._said) >= _KINDS_MAX:
                self._said.clear()
            self._said[key] = now_s, 0
            return more


def kafka_log() -> logging.Logger:
    """The logger of every Kafka client of the SDK."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(each, BrokerAway) for each in logger.filters):
        logger.addFilter(BrokerAway())
    return logger
