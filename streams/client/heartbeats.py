"""Heartbeats in their own thread, and the worker lease that hangs on them.

One record per partition and interval tells all that is held of the partition. At most one record
per partition is on its way: while it is, further ones are merged into the next, never queued.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

from dalsegno.schemas import codec
from dalsegno.schemas.liveness import Heartbeat, Held
from dalsegno.streams.client.attempt import Beating
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.errors import ClosedError, DeliveryFailed
from dalsegno.streams.client.holding import A, Holding
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt

_LOG = logging.getLogger("dalsegno.worker")
_INTERVAL_S_MIN = 0.1
LeaseLost = Callable[[Sequence[A], bool], None]
"""What the lease does not cover any more; and whether that is everything that is held."""


class Heartbeats(Generic[A]):
    """Sends heartbeats for what `holding` holds, and abandons it when the lease has run out.

    `lease_s`, `interval_s` in seconds; an infinite lease never runs out.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        holding: Holding[A],
        lease_lost: LeaseLost[A],
        *,
        worker: str,
        incarnation: int,
        interval_s: float,
        lease_s: float,
        clocks: Clocks,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._holding = holding
        self._lease_lost = lease_lost
        self._worker = worker
        self._incarnation = incarnation
        self._interval_s = interval_s
        self._lease_s = lease_s
        self._clocks = clocks
        self._alive_s: dict[int, float] = {}
        self._on_the_way: set[int] = set()
        self._ticked_s = clocks.lease_s()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{worker}-heartbeats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Stop the thread, and wait for it unless told not to."""
        self._stopping.set()
        if wait:
            self._thread.join()

    def lease_holds(self, attempt: A) -> bool:
        """Whether the attempt's last acknowledged sign of life was sent within the lease."""
        return self._clocks.lease_s() - self._last_sign_s(attempt) <= self._lease_s

    def tick(self) -> None:
        """One interval: abandon what the lease does not cover any more, send for the rest."""
        now = self._clocks.lease_s()
        held = self._holding.all()
        # A gap between ticks is this process standing still: nothing that it holds is certain any
        # more.
        paused = now - self._ticked_s > self._lease_s
        self._ticked_s = now
        lost = [a for a in held if paused or now - self._last_sign_s(a) > self._lease_s]
        if lost:
            self._lease_lost(lost, len(lost) == len(held))
        by_partition: dict[int, list[Held]] = {}
        for attempt in held:
            if attempt.stopped is None and attempt not in lost:
                by_partition.setdefault(attempt.partition, []).append(_held(attempt))
        for partition, items in by_partition.items():
            self._send(partition, tuple(items), now)

    def _last_sign_s(self, attempt: A) -> float:
        return max(attempt.started_sent_s, self._alive_s.get(attempt.partition, 0.0))

    def _send(self, partition: int, held: tuple[Held, ...], now_s: float) -> None:
        if partition in self._on_the_way:
            return
        heartbeat = Heartbeat(
            partition=partition,
            worker=self._worker,
            incarnation=self._incarnation,
            held=held,
            sent_at_ms=self._clocks.wall_ms(),
        )
        record = OutRecord(self._topic, partition, self._worker.encode(), codec.encode(heartbeat))
        self._on_the_way.add(partition)
        self._producer.send(record, partial(self._sent, partition, now_s))

    def _sent(
        self, partition: int, sent_s: float, _receipt: Receipt | None, error: DeliveryFailed | None
    ) -> None:
        self._on_the_way.discard(partition)
        if error is None:
            self._alive_s[partition] = max(sent_s, self._alive_s.get(partition, 0.0))

    def _wait_s(self) -> float:
        shortest = min((a.heartbeat_ms for a in self._holding.all()), default=0) / 1_000
        return max(_INTERVAL_S_MIN, min(self._interval_s, shortest or self._interval_s))

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._wait_s()):
                self.tick()
        except ClosedError:
            # At the end of a process the producer may be closed during the last tick.
            if not self._stopping.is_set():
                self._broken()
        except Exception:  # noqa: BLE001 - the thread's boundary: without heartbeats nothing is held
            self._broken()

    def _broken(self) -> None:
        """Called while the error is handled."""
        _LOG.exception("heartbeats of %s end: everything held is abandoned", self._worker)
        self._lease_lost(self._holding.all(), True)  # noqa: FBT003 - a callback


def _held(attempt: Beating) -> Held:
    run_id, step, epoch = attempt.id
    return Held(run_id=run_id, step=step, epoch=epoch, progress=attempt.progress)
