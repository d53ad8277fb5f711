"""Topics as the archiver reads them: records with offsets, a beginning that moves, no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True):
    """A record in the shape of librdkafka's."""

    at: int
    at_ms: int
    key_bytes: bytes
    value_bytes: bytes
    header_list: list[tuple[str, bytes]]
    event: Any = None

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at_ms

    def key(self) -> bytes:
        return self.key_bytes

    def value(self) -> bytes:
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes]]:
        return self.header_list


class Topic:
    """One partition. `low`: the first record that it has not forgotten."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.low = 0

    @property
    def end(self) -> int:
        return len(self.messages)

    def append(
        self,
        at_ms: int,
        key: bytes,
        value: bytes,
        event: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> int:
        self.messages.append(Message(self.end, at_ms, key, value, headers or [], event))
        return self.end - 1


class Reader:
    """What `LogReader` gives, of the topics of one world."""

    def __init__(self, topics: dict[str, Topic]) -> None:
        self._topics = topics

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = self._topics[topic]
        return found.low, found.end

    def read(
        self, topic: str, partition: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        found = self._topics[topic]
        first = found.low if start is None else start
        assert first >= found.low, f"{topic}: {first} is asked for, {found.low} is the first"
        yield from found.messages[first : found.end if end is None else end]

    def close(self) -> None:
        """Nothing is held."""
