"""Runs on the consumer's thread: hands out fetched records, exactly from the positions asked for.

Uses private parts of aiokafka (docs/adr names each): its `getmany` has no way to ask for a
position, and blocks on partitions that nobody is ready for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import ConsumerRecord

from dalsegno.streams.engine.header_names import read_leniently


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records from the wanted position on, and where the next fetch starts."""

    records: Sequence[ConsumerRecord]
    next_position: int
    end_offset: int


@dataclass(slots=True)
class Polled:
    """What a poll found. `ends`: log ends that a fetch told anew. `errors`: by partition, typed."""

    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fetched or self.errors)


class UnreadableRecordError(KafkaError):  # type: ignore[misc]
    """A record that the client itself cannot take apart. Fetching it again does not help."""


class Poller:
    """Polls one aiokafka consumer. All methods run on its loop, but `wake_soon`."""

    def __init__(self, consumer: AIOKafkaConsumer, loop: asyncio.AbstractEventLoop) -> None:
        read_leniently()
        self._consumer = consumer
        self._loop = loop
        self._wake: asyncio.Future[None] | None = None
        self._woken = False
        self._told: dict[TopicPartition, int] = {}

    def wake_soon(self) -> None:
        """From any thread: somebody is ready for more. Level-triggered: it is not lost between
        polls.
        """
        self._loop.call_soon_threadsafe(self._wake_now)

    def _wake_now(self) -> None:
        self._woken = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def poll(
        self, wanted: Mapping[TopicPartition, int], records_max: int, timeout_s: float
    ) -> Polled:
        """Records for the wanted positions; waits for some unless there are any, or a wake-up.

        Raises what the group's coordination pushed to its user, such as a missing permission.
        """
        self._consumer._coordinator.check_errors()
        # Counts as polling even with nothing wanted: restores may take long, and keep the
        # membership.
        with self._consumer._subscription.fetch_context():
            found = self._drain(wanted, records_max)
            if found or self._woken:  # perhaps before this poll began, and after it was asked for
                self._woken = False
                return found
            await self._wait(timeout_s)
            self._woken = False
            later = self._drain(wanted, records_max)
        later.ends = found.ends | later.ends
        return later

    async def _wait(self, timeout_s: float) -> None:
        fetched = self._consumer._fetcher._create_fetch_waiter()
        self._wake = self._loop.create_future()
        done, _ = await asyncio.wait(
            [fetched, self._wake], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        self._wake = None
        if fetched in done:
            fetched.exception()  # marks it as seen; the next poll raises it from `check_errors`
        else:
            fetched.cancel()

    def _drain(self, wanted: Mapping[TopicPartition, int], records_max: int) -> Polled:
        found = Polled()
        subscription = self._consumer._subscription
        if subscription.reassignment_in_progress or subscription.subscription is None:
            return found
        for partition, position in wanted.items():
            if not subscription.is_assigned(partition):
                continue
            state = subscription.subscription.assignment.state_value(partition)
            self._tell_end(partition, state, found)
            if not state.has_valid_position or state.position != position:
                # A stale prefetch, a reset to the group's offset, a batch that a rebalance dropped:
                # whatever the client holds from elsewhere is never delivered.
                self._consumer._fetcher._records.pop(partition, None)
                self._consumer.seek(partition, position)
                continue
            self._take(partition, state, records_max, found)
        return found

    def _take(self, partition: TopicPartition, state: Any, records_max: int, found: Polled) -> None:  # noqa: ANN401 - untyped upstream
        fetcher = self._consumer._fetcher
        result = fetcher._records.get(partition)
        if result is None:
            return
        before = state.position
        try:
            if not hasattr(result, "getall"):
                self._done_with(partition)
                result.check_raise()
                return
            records = result.getall(records_max)
        except NoOffsetForPartitionError:
            return  # from before the seek to the wanted position
        except (OffsetOutOfRangeError, CorruptRecordException, KafkaError) as error:
            fetcher._records.pop(partition, None)
            found.errors[partition] = error
            return
        except UnicodeDecodeError as error:
            # The client reads no further than the record before. Names of headers are read
            # leniently (`header_names`), so this is none of them.
            fetcher._records.pop(partition, None)
            found.errors[partition] = UnreadableRecordError(f"at or after offset {before}: {error}")
            return
        if not result.has_more():
            self._done_with(partition)
        if records or state.position != before:
            end = state.highwater if state.highwater is not None else state.position
            found.fetched[partition] = Fetched(records, state.position, end)

    def _done_with(self, partition: TopicPartition) -> None:
        fetcher = self._consumer._fetcher
        fetcher._records.pop(partition, None)
        fetcher._notify(fetcher._wait_consume_future)  # it fetches on once nothing is undrained

    def _tell_end(self, partition: TopicPartition, state: Any, found: Polled) -> None:  # noqa: ANN401 - untyped upstream
        """Report the log's end only when a new answer came: an old one proves nothing about now."""
        answered_at = state.timestamp
        if state.highwater is not None and self._told.get(partition) != answered_at:
            self._told[partition] = answered_at
            found.ends[partition] = state.highwater
