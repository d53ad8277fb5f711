"""From a consumed record to what the fold reads. Nothing in a record can stop the partition
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.errors import KeyMissing, SchemaMissing
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.intake import Intake, Refusal
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.engine.errors import PartitionStoppedError
from dalsegno.streams.engine.fold import Fold


class Consumed(Protocol):
    """A consumed record, of whichever client."""

    @property
    def offset(self) -> int:
        """Its place in the log."""

    @property
    def timestamp(self) -> int:
        """Its append time, Unix ms."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]:
        """Its headers."""


class EventReader:
    """Reads the records of one events partition."""

    def __init__(self, intake: Intake, partition: int) -> None:
        self._read = intake.read
        self._partition = partition

    def read(self, fold: Fold, consumed: Iterable[Consumed]) -> Iterator[Record]:
        """Records for the fold, one by one: an event may change the policy that the next is read
        by.

        Raises `PartitionStoppedError` at a record that needs a key or schema which this process
        lacks.
        """
        for raw in consumed:
            found = raw.headers
            headers = tuple((name, value or b"") for name, value in found) if found else ()
            value = raw.value or b""
            event: RunEvent | ControlEvent | Unreadable
            if (
                not headers
                or all(name.isascii() for name, _ in headers)
                or _names_are_text(headers)
            ):
                event = self._event(fold, raw, value, headers)
            else:
                event = Unreadable("bad_headers", "the name of a header is no UTF-8")
                headers = tuple((_shown(name), held) for name, held in headers)
            yield Record(raw.offset, raw.timestamp, raw.key or b"", value, event, headers)

    def _event(
        self, fold: Fold, raw: Consumed, value: bytes, headers: tuple[tuple[str, bytes], ...]
    ) -> RunEvent | ControlEvent | Unreadable:
        policy = fold.policy
        try:
            event = self._read(
                self._partition,
                raw.key,
                value,
                headers,
                schemas=policy.schemas,
                mac_keys=policy.mac_keys,
                registry_ids=policy.registry_ids,
                decision_keys=policy.decision_keys,
            )
        except (KeyMissing, SchemaMissing) as error:
            reason = "key_missing" if isinstance(error, KeyMissing) else "schema_missing"
            raise PartitionStoppedError(
                self._partition, reason, f"offset {raw.offset}: {error}"
            ) from error
        except (MemoryError, RecursionError):
            raise  # ours, not the record's: the task stops and is rebuilt
        except Exception as error:  # noqa: BLE001 - one bad record costs only itself
            # The detail holds nothing that may differ between processes: the fold keeps it.
            return Unreadable("intake_raised", type(error).__name__)
        if isinstance(event, Refusal):
            return Unreadable(str(event.reason), event.detail, event.run_id, event.kind)
        return event


def _names_are_text(headers: tuple[tuple[str, bytes], ...]) -> bool:
    """Whether all names were UTF-8; bytes that are not come as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for name, _ in headers for char in name)


def _shown(name: str) -> str:
    """A name that can be sent on: bytes that are no UTF-8 as `\\xff`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
