"""Turns events of one participant into records of the events topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from dalsegno.schemas import codec
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.headers import TRACEPARENT
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.producer import OutRecord

E = TypeVar("E", bound=RunEvent)


class Reporter:
    """Knows who reports (`source`), where answers go (`reply_to`), and the topic."""

    def __init__(
        self,
        topic: str,
        source: str,
        reply_to: str,
        clocks: Clocks,
        encode: Callable[[RunEvent], bytes] = codec.encode,
    ) -> None:
        self.topic = topic
        self.source = source
        self.reply_to = reply_to
        self.wall_ms = clocks.wall_ms
        self._encode = encode

    def stamp(self, event: E) -> E:
        """The event with this participant as its source, for kinds that were built elsewhere."""
        return msgspec.structs.replace(
            event, source=self.source, sent_at_ms=self.wall_ms(), reply_to=self.reply_to
        )

    def record(self, event: RunEvent, partition: int, trace: str = "") -> OutRecord:
        """Raises `EncodeError` for an event that the contract does not allow."""
        headers = ((TRACEPARENT, trace.encode()),) if trace else ()
        return OutRecord(self.topic, partition, event.run_id.encode(), self._encode(event), headers)
