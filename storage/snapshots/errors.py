"""What can be wrong with a snapshot. Nothing inside one is believed before it is verified."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Why a snapshot is not used."""

    TRUNCATED = "truncated"
    """It ends before its header says."""
    TRAILING = "trailing"
    """Bytes follow its end."""
    MAGIC = "magic"
    """It does not begin as a snapshot does."""
    FORMAT = "format"
    """Its format is of a newer version."""
    DIGEST = "digest"
    """Its bytes are not those that were written."""
    HEADER = "header"
    """Its header cannot be read, or says what cannot be."""
    RUN = "run"
    """It is of another run."""
    ORDER = "order"
    """It does not follow the link before it."""
    TOO_LARGE = "too_large"
    """It would unpack to more than is allowed."""
    FRAME = "frame"
    """Its payload does not decompress to what its header says."""
    CONTENT = "content"
    """Its payload is no context, or its operations do not fit the one before."""


class SnapshotCorrupt(Exception):  # noqa: N818 - what it is
    """A link that is not used. The one before it is, and the log from there on."""

    def __init__(self, run_id: str, fault: Fault, detail: str) -> None:
        super().__init__(f"snapshot of run {run_id!a}: {fault}: {detail}")
        self.run_id = run_id
        self.fault = fault
        self.detail = detail
