"""Our place in the consumer group: is it still ours, and does the group still hear us?

Watches every answer of the group's coordinator to aiokafka, which logs most of them and goes on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, RequestTimedOutError
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest

from dalsegno.streams.engine.errors import EvictedError
from dalsegno.streams.engine.fold import Clock

log = structlog.get_logger(__name__)

UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
FENCED_INSTANCE_ID: Final = 82
"""Error codes of the protocol; aiokafka has no class for the second."""

LEAVE_TIMEOUT_S: Final = 1.0
"""Others have our partitions when the session ends, if the group does not hear that we leave."""

PROBE_TIMEOUT_S: Final = 3.0
PROBE_INTERVAL_S: Final = 0.2


class Membership:
    """Runs on the consumer's loop, but for what is read. `evicted` is called on that loop."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        clock: Clock,
        static: bool,
        evicted: Callable[[EvictedError], None],
    ) -> None:
        self._coordinator = consumer._coordinator
        self._subscription = consumer._subscription
        self._clock = clock
        self._static = static
        self._evicted = evicted
        self._ask = self._coordinator._send_req
        self._coordinator._send_req = self._watched
        self.heard_at_s = clock()
        self.confirmed_at_s = -math.inf
        self.reachable = True

    async def _watched(self, request: Any) -> Any:  # noqa: ANN401 - untyped upstream
        asked_at_s = self._clock()
        leaves = isinstance(request, LeaveGroupRequest)
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S if leaves else None):
                answer = await self._ask(request)
        except KafkaError:
            self.reachable = False
            raise
        except TimeoutError as error:
            raise RequestTimedOutError from error
        self.reachable = True
        code = getattr(answer, "error_code", 0)
        if isinstance(request, HeartbeatRequest) and code in (0, REBALANCE_IN_PROGRESS):
            self.confirmed_at_s = asked_at_s
        if code == 0:
            self.heard_at_s = self._clock()
        elif self._static and code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
            # Two processes with one name would take the place from each other for ever.
            self._evicted(
                EvictedError(
                    f"the group gave this member's place away (error {code}): either it was silent "
                    "for longer than its session, or another process has the same name"
                )
            )
        return answer

    def silent_s(self, now_s: float) -> float:
        """For how long the group has not heard us although its broker answers; 0 while it is
        away.
        """
        return max(0.0, now_s - self.heard_at_s) if self.reachable else 0.0

    def unconfirmed_s(self, now_s: float) -> float:
        """For how long no heartbeat has said that our place is ours, as of when it was asked.

        A process that was asleep learns nothing from an answer that waited for it, from a broker
        that does not answer, or from joining anew before its partitions have been sorted out.
        """
        return max(0.0, now_s - self.confirmed_at_s)

    async def still_member(self, stopping: Callable[[], bool]) -> bool:
        """Ask the group with a heartbeat. True: the partitions are still ours.

        False: it has put us out, or is assigning anew, so an assignment will follow. While the
        broker is away it goes on asking: giving up would orphan the partition.
        """
        coordinator, subscription = self._coordinator, self._subscription
        while not stopping():
            if coordinator.generation < 0 or subscription.reassignment_in_progress:
                return False
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    known = coordinator.coordinator_id is not None
                    heard = known and await coordinator._do_heartbeat()
                if heard:
                    return not subscription.reassignment_in_progress
            except (KafkaError, TimeoutError) as error:
                log.warning("membership unknown, asking again", error=repr(error))
            await asyncio.sleep(PROBE_INTERVAL_S)
        return False

    async def leave(self) -> None:
        """Give a static member's place up at the stop, so that others need not wait for its
        session.
        """
        self._coordinator._group_instance_id = None


async def committed(consumer: AIOKafkaConsumer, topic: str, partition: int) -> int | None:
    """The group's offset of a partition, or None."""
    found: int | None = await consumer.committed(TopicPartition(topic, partition))
    return found


async def offset_at(consumer: AIOKafkaConsumer, topic: str, partition: int, at_ms: int) -> int:
    """The first offset appended at or after `at_ms`, else the end of the log."""
    place = TopicPartition(topic, partition)
    found = (await consumer.offsets_for_times({place: max(0, at_ms)}))[place]
    if found is not None:
        return int(found.offset)
    return int((await consumer.end_offsets([place]))[place])


async def ends(
    consumer: AIOKafkaConsumer, places: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """Where the logs end now; empty while no broker tells it in time.

    Counts as polling, even with nothing to ask: restores may take long, and keep the membership.
    Raises what the group's coordination pushed to its user, such as a missing permission.
    """
    consumer._coordinator.check_errors()
    with consumer._subscription.fetch_context():
        pass
    if not places:
        return {}
    try:
        async with asyncio.timeout(timeout_s):
            found = await consumer.end_offsets(places)
    except (KafkaError, TimeoutError):
        return {}
    return {place: int(end) for place, end in found.items()}
