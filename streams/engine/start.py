"""What happens before the group is joined: a broker answers, and the topics are right."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import structlog
from confluent_kafka import KafkaException

from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine.checks import check, layout_of, transactions_allowed
from dalsegno.streams.engine.context import Layout
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import OutcomeUnknownError, StartRefusedError
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin

log = structlog.get_logger(__name__)

_BROKER_RETRY_S: Final = 1.0
_TELL_S: Final = 60.0
_MAC_FAULT: Final = (
    "no MAC key: set DALSEGNO_MAC_KEYS=`id:hex` (at least 16 bytes; `openssl rand -hex 32`), the "
    "same in every engine and console"
)


async def wait_for_broker(settings: EngineSettings, stop: asyncio.Event) -> bool:
    """Wait for as long as it takes: Faust would exit if it cannot bootstrap. False if told to
    stop.

    Raises `StartRefusedError` for a broker that answers and does not let us in: a wait cannot help.
    """
    told_s = _now_s() - _TELL_S
    while not stop.is_set():
        try:
            await in_daemon_thread(TopicAdmin(settings).ping, "ping")
        except BrokerRefused as error:
            raise StartRefusedError((str(error),)) from error
        except KafkaException as error:
            if _now_s() - told_s >= _TELL_S:
                told_s = _now_s()
                log.warning("no broker yet", servers=settings.bootstrap_servers, error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(_BROKER_RETRY_S):
                    await stop.wait()
        else:
            return True
    return False


def _now_s() -> float:
    return time.monotonic()


async def ready_topics(settings: EngineSettings, admin: TopicAdmin) -> Layout:
    """Check everything. Raises `StartRefusedError` with all faults."""
    facts = await in_daemon_thread(admin.facts, "facts")
    findings = check(
        settings.topics,
        facts,
        dev=settings.dev,
        archive_interval_ms=settings.archive.interval_ms if settings.archive.enabled else 0,
        erasure=settings.erasure,
    )
    for warning in findings.warnings:
        log.warning("start-up check", warning=warning)
    faults = list(findings.faults)
    if not settings.mac_keys:
        faults.append(_MAC_FAULT)
    if not faults:
        refused = await _transactions(settings)
        faults += [refused] if refused else []
    if faults:
        raise StartRefusedError(tuple(faults))
    return layout_of(settings.topics, facts)


async def _transactions(settings: EngineSettings) -> str | None:
    while True:
        try:
            return await transactions_allowed(settings)
        except OutcomeUnknownError as error:
            log.warning("transactions not checked, trying again", error=str(error))
            await asyncio.sleep(_BROKER_RETRY_S)
