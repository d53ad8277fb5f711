"""The partitioner of the contract: Kafka's murmur2, as in its Java client.

Source of the algorithm: `org.apache.kafka.common.utils.Utils.murmur2` (32 bit, seed 0x9747b28c).
librdkafka must be told `partitioner=murmur2_random`; its default is another.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned 32-bit number (Java shows the same bits signed)."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in unpack_from(f"<{words}I", data):
        k = k * _M & _MASK  # noqa: PLW2901 - the mixing steps of the published algorithm
        k = (k ^ k >> 24) * _M & _MASK  # noqa: PLW2901
        h = h * _M & _MASK ^ k
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


# A run's events come in bursts, and Python takes microseconds for each hash.
@lru_cache(maxsize=8192)
def partition_for(run_id: str, count: int) -> int:
    """The partition of a run (or worker name) among `count`: murmur2 of its UTF-8, modulo."""
    return (murmur2(run_id.encode()) & 0x7FFFFFFF) % count
