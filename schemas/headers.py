"""Names of the Kafka record headers that the contract uses. Values are bytes."""

from __future__ import annotations

from typing import Final

SEQUENCE: Final = "dalsegno-seq"
"""20 bytes, big-endian: int64 source offset, uint32 index, int64 dense count. On every output."""

SOURCE: Final = "dalsegno-source"
"""4 bytes, big-endian: source partition. On answers and fault reports, whose key is not the run's.
"""

MAC: Final = "dalsegno-mac"
"""ASCII key id, a colon, and 32 raw bytes. On control kinds of the events topic."""

SIGNATURE: Final = "dalsegno-signature"
"""ASCII key id, a colon, and 64 raw bytes: Ed25519. On decisions, beside the MAC."""

DEAD_LETTER: Final = "dalsegno-dead-letter"
"""An encoded `DeadLetter`. On dead letters, beside the original headers."""

OMITTED: Final = "dalsegno-omitted"
"""ASCII: why an output has no value. It could not be encoded, or its topic does not take so much;
its place in the order stays taken.
"""

TRACEPARENT: Final = "traceparent"
"""W3C trace context, ASCII; passed from `RunStarted` to every handoff of the run."""
