"""Answers on the control topic: read by `assign` from the partition of this participant's address.

The reading position is the partition's end before the first record that asks for an answer is sent,
so no answer can be missed; answers are idempotent, so one that comes twice does no harm.
"""

from __future__ import annotations

import logging
import secrets
import struct
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from dalsegno.schemas import codec
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.headers import SEQUENCE
from dalsegno.schemas.outputs import Answer
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.fork import ForkGuard
from dalsegno.streams.client.record_headers import HeaderNamesError, headers_of
from dalsegno.streams.core.sequence import Sequence

_LOG = logging.getLogger("dalsegno.client")
_POLL_S = 0.2
_BATCH = 500
_ASK_AGAIN_S = 0.1


def reply_address(name: str) -> str:
    """`<name>-<random>`: no two processes, and no two lives of one, share an address."""
    return f"{name}-{secrets.token_hex(8)}"


class AnswerReader:
    """Owns a consumer and its thread; `on_answer` is called in that thread and must not block. It
    gets an answer, and the offset of the event that it answers (-1 if it does not say).
    """

    def __init__(
        self,
        config: ClientConfig,
        address: str,
        partitions: int,
        on_answer: Callable[[Answer, int], None],
    ) -> None:
        """Finds the end of the partition. Raises `DeliveryFailed` if no broker tells it in time."""
        self.address = address
        self._key = address.encode()
        self._on_answer = on_answer
        topic = config.topics.control
        self._consumer = Consumer(config.reader(f"{address}-answers"))
        self._guard = ForkGuard(self._consumer)
        place = TopicPartition(topic, partition_for(address, partitions))
        self._stopping = threading.Event()
        end = self._end_of(place, config.request_timeout_ms / 1_000)
        self._consumer.assign([TopicPartition(topic, place.partition, end)])
        self._thread = threading.Thread(target=self._run, name=f"{address}-answers", daemon=True)
        self._thread.start()

    def _end_of(self, place: TopicPartition, timeout_s: float) -> int:
        """A leader that moves or has just been chosen is asked again until the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
            except KafkaException as error:
                if time.monotonic() > deadline_s:
                    self._consumer.close()
                    cause = error.args[0]
                    raise DeliveryFailed(
                        place.topic, self._key, cause.name(), cause.str()
                    ) from error
                self._stopping.wait(_ASK_AGAIN_S)
            else:
                return int(end)

    def close(self) -> None:
        """Stop reading. May be repeated."""
        if not self._guard.forked and not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            for each in (message, *self._consumer.consume(_BATCH, 0)):
                if each.error() is not None:
                    _LOG.warning("reading answers: %s", each.error())
                elif each.key() == self._key:
                    self._hand_on(each)

    def _hand_on(self, message: Message) -> None:
        try:
            answer = codec.decode(message.value() or b"")
        except DecodeError as error:
            _LOG.error("an answer that cannot be read: %s", error)
            return
        if isinstance(answer, Answer):
            try:
                self._on_answer(answer, _offset_of(message))
            except Exception:  # noqa: BLE001 - anybody may write there: one answer costs only itself
                _LOG.exception("an answer about run %r was not taken in", answer.run_id)


def _offset_of(message: Message) -> int:
    try:
        sequence = dict(headers_of(message)).get(SEQUENCE, b"")
        return Sequence.unpack(sequence).offset
    except (HeaderNamesError, struct.error):
        return -1
