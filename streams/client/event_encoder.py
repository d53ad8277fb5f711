"""Run events as bytes, in the format of the settings."""

from __future__ import annotations

import threading

from dalsegno.schemas import codec
from dalsegno.schemas.confluent import frame
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.kinds import RUN_EVENTS
from dalsegno.schemas.registry import registry
from dalsegno.streams.client.schema_registry import RegistrySettings, SchemaRegistry


class EventEncoder:
    """Single-object encoding; with a registry the Confluent wire format. Thread-safe.

    The registry is asked once, for the ids of all kinds, before the first event. Everything else
    that the SDK writes (heartbeats, hellos) stays in single-object encoding.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._registry = SchemaRegistry(settings) if settings.url else None
        self._ids: dict[type, int] = {}
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Ask the registry if there is one and it was not asked yet. Blocks. Raises
        `RegistryUnavailable`, `RegistryRefused`.
        """
        if self._registry is None or self._ids:
            return
        with self._lock:
            if not self._ids:
                newest = registry().newest
                ask = self._registry.look_up
                self._ids = {kind: ask(newest(kind.__name__)) for kind in RUN_EVENTS}

    def __call__(self, event: RunEvent) -> bytes:
        """Raises `EncodeError` for an event that the contract does not allow; as `prepare`."""
        value = codec.encode(event)
        if self._registry is None:
            return value
        self.prepare()
        return frame(self._ids[type(event)], value)
