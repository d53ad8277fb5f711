"""Steps that services report to be under way, and the heartbeats that the client sends for them.

A reported step has no lease: its service owns it until the service says otherwise or is told to
stop.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence

from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.streams.client.attempt import AttemptId, StopReason
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.heartbeats import Heartbeats
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.producer import Producer

_LOG = logging.getLogger("dalsegno.client")
_INTERVAL_MS = 1_000  # what the contract asks for; no step is found silent before 10 s
# With the longest names of runs and steps a partition's record stays below Kafka's usual megabyte.
_STEPS_MAX = 1_000
_STOPS = frozenset({AnswerType.SUPERSEDED, AnswerType.CANCELLED})


class Reported:
    """An attempt that its service drives. `progress` only grows; `took_over`: in this client, from
    an attempt with a lower number that had not ended.
    """

    __slots__ = (
        "attempt",
        "partition",
        "progress",
        "run_id",
        "started_sent_s",
        "step",
        "stopped",
        "took_over",
    )
    heartbeat_ms = _INTERVAL_MS

    def __init__(self, run_id: str, step: str, attempt: int) -> None:
        self.run_id = run_id
        self.step = step
        self.attempt = attempt
        self.partition = 0
        self.progress = 0
        self.started_sent_s = 0.0
        self.stopped: StopReason | None = None
        self.took_over = False

    @property
    def id(self) -> AttemptId:
        return (self.run_id, self.step, 0)


class ReportedSteps:
    """Thread-safe. At most `most` attempts at a time send heartbeats; the thread that sends them
    begins with the first.
    """

    def __init__(
        self, producer: Producer, topic: str, name: str, clocks: Clocks, most: int = _STEPS_MAX
    ) -> None:
        """`name` is what `StepStarted` names as the worker; its incarnation is always 0."""
        self._most = most
        self._held: Holding[Reported] = Holding(most)
        self._lock = threading.Lock()
        self._started = self._closed = self._warned = False
        self.heartbeats: Heartbeats[Reported] = Heartbeats(
            producer,
            topic,
            self._held,
            _broken,
            worker=name,
            incarnation=0,
            interval_s=_INTERVAL_MS / 1_000,
            lease_s=math.inf,
            clocks=clocks,
        )

    def add(self, reported: Reported, partition: int) -> None:
        """The log has the attempt's start. A lower attempt of the step is over."""
        with self._lock:
            held = self._held.get(reported.id)
            if held is reported or self._closed:
                return
            if held is not None:
                if held.attempt >= reported.attempt:
                    return
                reported.took_over = True
                self._held.remove(held)
            if not self._held.reserve(1):
                self._warn(reported)
                return
            reported.partition = partition
            self._held.add(reported)
            if not self._started:
                self._started = True
                self.heartbeats.start()

    def find(self, run_id: str, step: str, attempt: int) -> Reported | None:
        """The attempt, if it is under way."""
        held = self._held.get((run_id, step, 0))
        return held if held is not None and held.attempt == attempt else None

    def remove(self, run_id: str, step: str, attempt: int) -> None:
        """The attempt is over, and so is a lower one. Does nothing the second time."""
        with self._lock:
            held = self._held.get((run_id, step, 0))
            if held is not None and held.attempt <= attempt:
                self._held.remove(held)

    def tell(self, answer: Answer) -> None:
        """The service takes a step away, unasked: whoever has it must stop."""
        if answer.kind or answer.answer not in _STOPS:
            return
        with self._lock:
            held = self._held.get((answer.run_id, answer.step, 0))
            # An attempt that took over here is the newer one itself.
            if held is not None and not (answer.reason == "newer_attempt" and held.took_over):
                self._held.remove(held)

    def close(self, *, wait: bool = True) -> None:
        """No heartbeat is sent any more. May be repeated."""
        if not wait:
            # The thread in whose middle this runs may have the lock.
            self._closed = True
            self.heartbeats.stop(wait=False)
            return
        with self._lock:
            running, self._closed = self._started and not self._closed, True
        if running:
            self.heartbeats.stop()

    def _warn(self, reported: Reported) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "%d reported steps are under way: step %r of run %r and others send "
                "no heartbeats, only reports are signs of life: end some, or use one more client",
                self._most,
                reported.step,
                reported.run_id,
            )


def _broken(steps: Sequence[Reported], _everything: bool) -> None:
    _LOG.error("%d reported steps send no heartbeats any more", len(steps))
