"""Brings the packages of the partitions that are ours to one target."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import ClientSession
from confluent_kafka import KafkaException, Message

from dalsegno.schemas import codec
from dalsegno.schemas.control import Webhook
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.agents.webhooks.feed import Feed
from dalsegno.streams.agents.webhooks.ledger import Ledger
from dalsegno.streams.agents.webhooks.message import headers_of, message_of
from dalsegno.streams.agents.webhooks.posting import Attempt, Posted, post
from dalsegno.streams.agents.webhooks.target import Target, Waiting
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.restore import sequence_in
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

WAITING_MAX: Final = 256
"""Packages of one partition that wait for one target before no more of it are read."""
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
_LOOK_S: Final = 0.5
_AFTER_FAILURE_S: Final = 1.0
_LAST_COMMIT_S: Final = 1.0
_SAVE_S: Final = 3_600.0
"""Brokers forget the offsets of a group that commits nothing for a week."""

OVERTAKEN: Final = "overtaken"
GIVEN_UP: Final = "given_up"


@dataclass(frozen=True, slots=True)
class Means:
    """What the couriers of an engine share. `jitter` gives a number from 0 to 1; `unconfirmed_s`
    for how long no heartbeat has said that this engine's partitions are its own.
    """

    settings: EngineSettings
    metrics: EngineMetrics
    session: ClientSession
    jitter: Callable[[], float]
    unconfirmed_s: Callable[[], float]


class Courier:
    """One target of one engine. `own` says which partitions; two loops read and post."""

    def __init__(self, hook: Webhook, means: Means) -> None:
        self.target = Target(hook, means.jitter)
        self._hook = hook
        self._means = means
        self._folds: Mapping[int, Partition] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._opened: dict[int, Partition] = {}
        self._unsaved: set[int] = set()
        self._saved_s = time.monotonic()
        self._news = asyncio.Event()
        self._settled = asyncio.Event()
        self._feed = Feed(means.settings, hook.name)
        self._tasks = [
            asyncio.create_task(self._for_ever(self._read)),
            asyncio.create_task(self._for_ever(self._deliver)),
            asyncio.create_task(self._for_ever(self._save)),
        ]

    def own(self, folds: Mapping[int, Partition]) -> None:
        """The partitions that are ours and name this target."""
        self._folds = folds

    async def close(self) -> None:
        """Post nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            # What the next owner does not know of may be posted again, with the same id.
            async with asyncio.timeout(_LAST_COMMIT_S):
                await self._commit()
        except (KafkaException, TimeoutError) as error:
            log.warning("webhook: not committed", webhook=self._hook.name, error=repr(error))
        finally:
            await self._feed.close()

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except KafkaException as error:
                log.warning("webhook: Kafka does not answer", webhook=self._hook.name,
                            error=repr(error))  # fmt: skip
                self._count("error")
                await asyncio.sleep(_AFTER_FAILURE_S)
            except Exception:
                # The boundary of a target: whatever it is, it is counted, seen, and tried again.
                log.exception("webhook failed", webhook=self._hook.name)
                self._count("error")
                await asyncio.sleep(_AFTER_FAILURE_S)

    async def _read(self) -> None:
        """Take partitions over and give them back, then hand over what is new."""
        for number, fold in list(self._opened.items()):
            # Another fold of it: it may have been another engine's in between.
            if self._folds.get(number) is not fold:
                await self._give_back(number)
        for number, fold in sorted(self._folds.items()):
            if number not in self._opened:
                self._ledgers[number] = await self._feed.open(number)
                self._opened[number] = fold
        if not self._opened:
            await asyncio.sleep(_LOOK_S)
            return
        try:
            for message in await self._feed.read(self._full()):
                self._take(message)
                self._news.set()
        except Exception:
            # Where it stood may be gone, or what was read is: each partition is opened again.
            for number in list(self._opened):
                await self._give_back(number)
            raise

    async def _give_back(self, number: int) -> None:
        del self._ledgers[number], self._opened[number]
        self._unsaved.discard(number)
        for waiting in self.target:
            if waiting.place[0] == number:
                self.target.drop(waiting.place)
        await self._feed.close_partition(number)

    def _full(self) -> set[int]:
        if self.target.bytes_waiting >= WAITING_BYTES_MAX:
            return set(self._ledgers)
        counts = dict.fromkeys(self._ledgers, 0)
        for waiting in self.target:
            counts[waiting.place[0]] += 1
        return {n for n, each in self._ledgers.items() if each.full or counts[n] >= WAITING_MAX}

    def _take(self, record: Message) -> None:
        number, offset = record.partition() or 0, record.offset() or 0
        ledger = self._ledgers.get(number)
        if ledger is None or offset < ledger.next_offset:
            return
        if not ledger.read(offset, _count_of(record)):
            self._dirty(number)
            return
        package = codec.decode_if(Escalation, record.value())
        if package is None or (self._hook.flows and package.flow not in self._hook.flows):
            self._settle((number, offset))
            return
        try:
            message = message_of(package)
        except Exception:
            # One bad package costs only itself.
            log.exception("webhook: no message", package=package.escalation_id)
            self._settle((number, offset))
            self._dropped(GIVEN_UP)
        else:
            self.target.add(Waiting((number, offset), package, message))

    def _settle(self, place: tuple[int, int]) -> None:
        self.target.drop(place)
        ledger = self._ledgers.get(place[0])
        if ledger is not None:
            ledger.settle(place[1])
            self._dirty(place[0])

    def _dirty(self, number: int) -> None:
        self._unsaved.add(number)
        self._settled.set()

    async def _deliver(self) -> None:
        """Post what is due, or wait for news."""
        self._news.clear()
        now_s = time.monotonic()
        if now_s - self._saved_s > _SAVE_S:
            for number in self._ledgers:
                self._dirty(number)
        due = self.target.next(now_s)
        if due is not None and self._known(due) and self._ours():
            if not self._dropped_if_overtaken(due):
                await self._post(due)
            return
        for waiting in self.target:
            self._dropped_if_overtaken(waiting)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._news.wait()

    def _known(self, waiting: Waiting) -> bool:
        """Whether the fold has come so far that it knows of the question."""
        fold = self._folds.get(waiting.place[0])
        return fold is not None and fold.position > waiting.package.offset

    def _ours(self) -> bool:
        """Whether the group has confirmed our place lately. One that was asleep posts nothing more
        until it has; the one attempt that was out has the id and body of the new owner's.
        """
        return self._means.unconfirmed_s() < self._means.settings.session_timeout_ms / 2_000

    def _dropped_if_overtaken(self, waiting: Waiting) -> bool:
        fold = self._folds.get(waiting.place[0])
        if fold is None or not self._known(waiting) or fold.previews.still_asked(waiting.package):
            return False
        self._settle(waiting.place)
        self._dropped(OVERTAKEN)
        return True

    async def _post(self, waiting: Waiting) -> None:
        attempt = await self._attempt(waiting)
        self._count(attempt.posted)
        if attempt.posted is not Posted.DELIVERED:
            log.warning("webhook not delivered", webhook=self._hook.name, detail=attempt.detail,
                        package=waiting.package.escalation_id)  # fmt: skip
        gave_up = self.target.heard(waiting, attempt, time.monotonic())
        if gave_up:
            log.error("webhook given up", webhook=self._hook.name, detail=attempt.detail,
                      package=waiting.package.escalation_id)  # fmt: skip
            self._dropped(GIVEN_UP)
        if gave_up or attempt.posted is Posted.DELIVERED:
            self._settle(waiting.place)

    async def _attempt(self, waiting: Waiting) -> Attempt:
        secret = self._means.settings.webhook_secrets.get(self._hook.key_id)
        if secret is None:
            detail = f"DALSEGNO_WEBHOOK_SECRETS has no key {self._hook.key_id!r}"
            return Attempt(Posted.TROUBLE, detail)
        message = waiting.message
        headers = headers_of(self._hook, secret, message, int(time.time()))
        timeout_s = self._hook.timeout_ms / 1_000
        return await post(self._means.session, self._hook.url, message.body, headers, timeout_s)

    async def _save(self) -> None:
        """Commit what is settled, beside the posts: what a kill repeats is what was posted while
        one commit was under way.
        """
        await self._settled.wait()
        self._settled.clear()
        if not self._ours():
            self._settled.set()
            await asyncio.sleep(_LOOK_S)
            return
        await self._commit()

    async def _commit(self) -> None:
        saving = {n: self._ledgers[n] for n in self._unsaved if n in self._ledgers}
        self._unsaved.clear()
        if not saving:
            return
        try:
            await self._feed.save(saving)
        except BaseException:
            for number in saving:
                self._dirty(number)
            raise
        self._saved_s = time.monotonic()

    def _count(self, result: str) -> None:
        self._means.metrics.count(catalogue.WEBHOOK_POSTS, webhook=self._hook.name, result=result)

    def _dropped(self, reason: str) -> None:
        name = self._hook.name
        self._means.metrics.count(catalogue.WEBHOOK_DROPPED, webhook=name, reason=reason)


def _count_of(record: Message) -> int:
    """The dense count of an output; 0 of what is none."""
    sequence = sequence_in(record)
    return 0 if sequence is None else sequence.count
