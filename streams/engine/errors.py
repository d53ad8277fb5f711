"""Errors of the engine: each type says what its catcher should do."""

from __future__ import annotations


class EngineError(Exception):
    """Whatever stops an engine or one of its partitions."""


class FencedError(EngineError):
    """A newer owner has the partition: write nothing, and ask the group before anything else."""


class OutcomeUnknownError(EngineError):
    """A write failed, or may have: rebuild the partition from its last checkpoint."""


class TopicTooSmallError(OutcomeUnknownError):
    """The broker refused a write as too large: `topic` takes less than the service writes to it, or
    less than the policy lets be written. Rebuild once that is mended.
    """

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(
            f"{topic} takes less than is written to it: raise its max.message.bytes, "
            f"`dalsegno topics create` does for what is written by default ({detail})"
        )
        self.topic = topic


class NotSignedError(OutcomeUnknownError):
    """No MAC key of ours is in force: nothing was sent. Try again once one is."""

    def __init__(self) -> None:
        super().__init__("no key in DALSEGNO_MAC_KEYS is in the policy's mac_keys")


class BrokerLostError(EngineError):
    """No broker answers any more during the start: begin anew, as if it had not been there."""


class RestoreError(EngineError):
    """The changelog could not be read up to our claim in time. Rebuild; nothing was written."""


class PartitionStoppedError(EngineError):
    """The partition cannot go on until a person acts. Retrying does not help.

    `partition`, `reason` (a short code), and what to do, as text.
    """

    def __init__(self, partition: int, reason: str, detail: str) -> None:
        super().__init__(f"partition {partition} stopped ({reason}): {detail}")
        self.partition = partition
        self.reason = reason
        self.detail = detail


class PositionLostError(PartitionStoppedError):
    """The place to read on from is missing: nothing resets to earliest or latest by itself."""


class StartRefusedError(EngineError):
    """The start-up checks found faults. `faults` holds one line each, with the command that mends
    it.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class EvictedError(EngineError):
    """The group gave this static member's place to another process: leave, do not fight for it."""


class PartitionsChangedError(EngineError):
    """A topic's partition count changed while we ran: keys would go to the wrong partition."""


class OffsetGoneError(EngineError):
    """The log no longer holds the offset to read from, or not as it was."""


class FetchRefusedError(EngineError):
    """The broker refuses to give records: waiting does not help."""
