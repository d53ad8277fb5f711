"""The agents that consume the engine's topics: one stream event is one fetch of one partition.

What a batch does stays with the partition task that asked for it; nothing is ever raised into
Faust, which would acknowledge the batch and restart the agent.
"""

from __future__ import annotations

from typing import Any

import faust

from dalsegno.streams.engine.settings import EngineSettings


def register(app: faust.App, settings: EngineSettings) -> None:
    """Register the agents of the events and the heartbeats; both topics are co-partitioned."""
    topics = settings.topics
    for name in (topics.events, topics.heartbeats):
        channel = app.topic(name, key_type=bytes, value_type=bytes)
        app.agent(channel, name=f"on-{name}")(deliver)


async def deliver(stream: Any) -> None:  # noqa: ANN401 - untyped upstream
    """Hand each batch to its partition task. Positions are the tasks': nothing is acknowledged."""
    async for batch in stream.noack():
        batch.process()
