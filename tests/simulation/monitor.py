"""The product's monitor beside a partition's owner, fed from the simulated topics.

It is late, frozen or a zombie together with its engine. False verdicts are written by `faults.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.clock import Step
from tests.simulation.log import Entry, Producer

from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.liveness import Canary, Heartbeat, Hello, Mark
from dalsegno.streams.core.liveness import LivenessSettings, Monitor, Reading
from dalsegno.streams.core.warm import WarmLost

if TYPE_CHECKING:
    from tests.simulation.engine import Session

INTERVAL_MS = 1_000
READ_BACK = 80


class Watch:
    """One monitor per session of a partition."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.world = session.world
        self.heartbeats = self.world.heartbeats[session.number]
        self.position = max(0, self.heartbeats.end - READ_BACK)
        self.name = session.engine.process.name
        # Canaries are sent less often here than in the product, so the cap is wider.
        settings = LivenessSettings(clock_cap_ms=2 * INTERVAL_MS)
        self.monitor = Monitor(session.number, name=self.name, settings=settings)

    def watch(self) -> Step:
        session, network = self.session, self.world.network
        producer = Producer(network, session.engine.process)
        number = 0
        while True:
            yield INTERVAL_MS
            if not session.alive:
                return
            number += 1
            canary = Canary(partition=session.number, monitor=self.name, number=number)
            producer.send(self.heartbeats, "", canary)
            producer.renew()
            self.read()
            log_ms = session.partition.log_ms
            if self.monitor.queues_to_read(log_ms):
                yield network.delay()
                self.read_mark()
            if not self.monitor.ask(log_ms, session.partition.position):
                continue
            yield network.delay()
            events_end, heartbeats_end = session.log.end, self.heartbeats.end
            yield network.delay()
            if not session.alive:
                return
            self.read()
            for verdict in self.monitor.caught_up(self.reading(events_end, heartbeats_end)):
                ack = producer.send(session.log, verdict.run_id, verdict)
                ack.then(partial(self.said, verdict))
                producer.renew()

    def said(self, verdict: StallSuspected, got: object) -> None:
        """Where the verdict stands, or that nobody knows."""
        if isinstance(got, Entry):
            self.monitor.appended(verdict, got.offset)
        else:
            self.monitor.not_appended(verdict)

    def reading(self, events_end: int, heartbeats_end: int) -> Reading:
        partition = self.session.partition
        return Reading(
            events_offset=partition.position,
            events_end=events_end,
            heartbeats_offset=self.position,
            heartbeats_end=heartbeats_end,
            log_ms=partition.log_ms,
        )

    def read(self) -> None:
        try:
            changes = self.session.partition.drain_in_flight()
        except WarmLost:
            self.session.end("store lost")
            return
        for key, attempt in changes:
            self.monitor.attempt(key, attempt)
        for entry in self.heartbeats.entries[self.position :]:
            self.hear(entry)
        self.position = self.heartbeats.end

    def hear(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, Heartbeat):
            self.monitor.heartbeat(event, entry.at_ms)
        elif isinstance(event, Hello):
            self.monitor.hello(event, entry.offset, entry.at_ms)
        elif isinstance(event, Canary):
            self.monitor.canary(event, entry.at_ms)

    def read_mark(self) -> None:
        mark = self.world.queue_group.committed[self.session.number]
        if mark.sequence is not None:
            self.monitor.mark(
                Mark(
                    queue="default",
                    partition=self.session.number,
                    offset=mark.sequence.offset,
                    index=mark.sequence.index,
                    worker=mark.worker,
                    incarnation=mark.incarnation,
                )
            )
