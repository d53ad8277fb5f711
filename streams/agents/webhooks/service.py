"""The webhooks of one engine: a courier for each target that a partition of ours names."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Final

import structlog

from dalsegno.schemas.control import Webhook
from dalsegno.streams.agents.webhooks.courier import Courier, Means
from dalsegno.streams.agents.webhooks.posting import new_session
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.task import RUNNING

log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.25


async def webhooks(ownership: Ownership) -> None:
    """Post packages for as long as the engine runs."""
    service = WebhookService(ownership)
    try:
        while True:
            await service.look()
            await asyncio.sleep(_LOOK_S)
    finally:
        await service.close()


class WebhookService:
    """Which targets there are, by the policies of the partitions that run here."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._couriers: dict[Webhook, Courier] = {}
        self._means: Means | None = None

    async def look(self) -> None:
        """Begin, change and end couriers as partitions and policies do; then say what waits."""
        wanted = self._wanted()
        for hook in set(self._couriers) - set(wanted):
            # Before another of its name begins: both would commit to one group.
            await self._couriers.pop(hook).close()
        for hook, folds in wanted.items():
            courier = self._couriers.get(hook)
            if courier is None:
                courier = self._couriers[hook] = Courier(hook, self._shared())
            courier.own(folds)
        self._figures()

    def _wanted(self) -> dict[Webhook, dict[int, Partition]]:
        wanted: dict[Webhook, dict[int, Partition]] = {}
        for number, task in self._ownership.tasks.items():
            fold = task.fold
            if isinstance(fold, Partition) and task.state in RUNNING:
                for hook in fold.policy.webhooks:
                    wanted.setdefault(hook, {})[number] = fold
        return wanted

    def _shared(self) -> Means:
        if self._means is None:
            context = self._ownership.context
            self._means = Means(
                context.settings,
                context.metrics,
                new_session(),
                jitter=random.random,
                unconfirmed_s=context.joined().unconfirmed_s,
            )
        return self._means

    def _figures(self) -> None:
        metrics = self._ownership.context.metrics
        for metric in (catalogue.WEBHOOK_WAITING, catalogue.WEBHOOK_OLDEST, catalogue.WEBHOOK_GONE):
            metrics.clear(metric)
        now_ms = time.time() * 1_000
        for hook, courier in self._couriers.items():
            target = courier.target
            oldest_ms = target.oldest_ms
            age_s = 0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1_000)
            metrics.gauge(catalogue.WEBHOOK_WAITING, len(target), webhook=hook.name)
            metrics.gauge(catalogue.WEBHOOK_OLDEST, age_s, webhook=hook.name)
            metrics.gauge(catalogue.WEBHOOK_GONE, int(target.gone), webhook=hook.name)

    async def close(self) -> None:
        """End all couriers, whatever one of them raises: what is left would post for ever."""
        async with AsyncExitStack() as ends:
            if self._means is not None:
                ends.push_async_callback(self._means.session.close)
            while self._couriers:
                ends.push_async_callback(self._couriers.popitem()[1].close)
