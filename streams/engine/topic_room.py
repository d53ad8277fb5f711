"""Waiting for a topic that was set to take less than we write: asked at a steady pace, until it is
mended. Nothing is rebuilt meanwhile: it would only fail again, and end what other partitions send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaException

from dalsegno.schemas.control import Policy
from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine.checks import dispatch_fault, size_fault
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin

log = structlog.get_logger(__name__)

LOOK_S: Final = 2.0


async def await_room(
    settings: EngineSettings,
    topic: str,
    policy: Policy,
    say: Callable[[str], None],
    wanted: Callable[[], bool],
) -> bool:
    """Returns once the topic (without a name: every one) takes what we write under this policy, or
    it is not `wanted` any more, or no broker can be asked: the next write tells then. `say` hears
    what is wrong, with the command that mends it. True: it was that, and is mended.
    """
    said = ""
    while wanted():
        try:
            # Its thread may wait for a broker for longer than a stop may take.
            facts = await in_daemon_thread(lambda: TopicAdmin(settings).facts(), "topic-room")
        except (KafkaException, TimeoutError, BrokerRefused) as error:
            log.warning("the topic was not looked at", topic=topic, error=str(error))
            return False
        fault = size_fault(settings.topics, facts, topic)
        fault = fault or dispatch_fault(settings.topics, facts, policy, in_force=True)
        if not fault:
            return bool(said)
        if fault != said:
            say(fault)
            said = fault
        await asyncio.sleep(LOOK_S)
    return False
