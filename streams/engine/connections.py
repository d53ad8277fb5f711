"""aiokafka's connections on uvloop: one that has just been lost is an error of the connection.

asyncio's transport drops a write after its end. uvloop's raises a bare `RuntimeError`, which
aiokafka takes for a fault of the program: it ends the group's coordination, and so the engine,
where the broker had only been started anew.
"""

from __future__ import annotations

from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

_send = AIOKafkaConnection.send


def _send_or_lost(self: AIOKafkaConnection, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - untyped upstream
    try:
        return _send(self, *args, **kwargs)
    except KafkaError:
        raise
    except RuntimeError as error:
        self.close(reason=CloseReason.CONNECTION_BROKEN)
        where = f"{self.host}:{self.port}"
        raise KafkaConnectionError(f"Connection at {where} broken: {error}") from error


def mend_connections() -> None:
    """From now on, for all of aiokafka's clients in this process. May be repeated."""
    AIOKafkaConnection.send = _send_or_lost
