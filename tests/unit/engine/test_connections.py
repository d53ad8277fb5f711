"""A write to a connection that is over is an error of the connection, on uvloop too."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from dalsegno.streams.engine.connections import mend_connections


async def write_after_the_end() -> None:
    ended = asyncio.Event()

    def end(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        ended.set()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        connection = AIOKafkaConnection(host, port)
        connection._reader, connection._writer = await asyncio.open_connection(host, port)
        connection._read_task = asyncio.get_running_loop().create_future()
        connection._versions = {3: (0, 1)}
        await ended.wait()
        connection._writer.transport.abort()
        await asyncio.sleep(0)
        connection.send(MetadataRequest([]))


def test_a_write_to_a_lost_connection_is_an_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AIOKafkaConnection, "send", AIOKafkaConnection.send)
    mend_connections()
    with (
        pytest.raises(KafkaConnectionError, match="broken"),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(write_after_the_end())
