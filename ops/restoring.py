"""Brings a run back from the archive by hand: what an engine does when something comes for it."""

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from dalsegno.ops.archived import open_archive
from dalsegno.ops.kafka.engines import Engines
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.run_view import Fields
from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import RunRestored
from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.state_segments import States

_LOOK_S = 0.2


class Here(NamedTuple):
    """The run as an engine has it. `kind`: see `RunView`. `brought`: it was in the archive."""

    kind: str
    state: str
    brought: bool


class Left(NamedTuple):
    """How a run left for the archive: the segment that has it, the digest of its parts, and when
    (Unix ms).
    """

    run_id: str
    segment: str
    digest: bytes
    at_ms: int


Source = Callable[[Left], bytes]
"""Where the parts of a run come from."""


class StateLostError(Exception):
    """The archive has lost a state, or damaged it."""


class NotBackError(Exception):
    """What was fetched is in the log, and the run is not back yet."""


class LeftAgainError(Exception):
    """The run was back, and left with another state than the one that was fetched."""


def restore(settings: EngineSettings, run_id: str, limit_s: float, source: Source) -> Here:
    """Take the run's state from where `source` has it, append it, and wait until the run is back.

    Raises `AppendError`, `NoKeyError`, `NotBackError`, `LeftAgainError`, what asking the engines
    raises, and what `source` does.
    """
    run = Engines.find(settings).run(run_id)
    left = _left(run_id, run)
    if left is None:
        return _here(run, brought=False)
    parts = source(left)
    # That may have taken hours: other engines may be there, and the run may have been back.
    engines = Engines.find(settings)
    run = engines.run(run_id)
    now = _left(run_id, run)
    if now is None:
        return _here(run, brought=True)
    if now.digest != left.digest:
        raise LeftAgainError(f"run {run_id} has been back and has left with another state: repeat")
    append(settings, run_id, _restored(now, parts))
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        run = engines.run(run_id)
        again = _left(run_id, run)
        # One that has left again meanwhile has been here.
        if again is None or again.at_ms != now.at_ms:
            return _here(run, brought=True)
        time.sleep(_LOOK_S)
    raise NotBackError(
        f"run {run_id}: its state is in the log, and no engine has taken it within {limit_s:.0f} s"
    )


def _left(run_id: str, run: Fields) -> Left | None:
    """How the run left, by an engine's view of it; None if it is here."""
    found = run.get("archived")
    if not isinstance(found, dict):
        return None
    digest = bytes.fromhex(str(found["digest"]))
    return Left(run_id, str(found["segment"]), digest, int(found["archived_ms"]))


def _here(run: Fields, *, brought: bool) -> Here:
    return Here(str(run.get("kind")), str(run.get("state") or run.get("kind")), brought)


def fetched(settings: EngineSettings, left: Left) -> bytes:
    """The parts of a run, out of the archive. Raises `ArchiveError`, `StateLostError`."""
    with open_archive(settings) as archive:
        try:
            return States(archive).parts(left.segment, left.run_id, left.digest)
        except SegmentCorrupt as error:
            raise StateLostError(str(error)) from error
        except ArchiveError as error:
            if error.trouble not in {Trouble.MISSING, Trouble.DAMAGED}:
                raise
            raise StateLostError(str(error)) from error


def _restored(left: Left, parts: bytes) -> RunRestored:
    return RunRestored(
        run_id=left.run_id,
        restore_id=secrets.token_hex(16),
        parts=parts,
        digest=left.digest,
        source="cli",
    )


def append(settings: EngineSettings, run_id: str, event: RunRestored) -> int:
    """Appends it under its MAC; returns its offset. Raises `AppendError`, `NoKeyError`."""
    topic, value = settings.topics.events, codec.encode(event)
    with Reader(settings) as reader:
        number = partition_for(run_id, reader.partitions(topic))
    writer = Writer(settings)
    mac = settings.keyring.sign(writer.key(number), topic, number, value)
    return writer.append(topic, number, run_id.encode(), value, [(headers.MAC, mac)])
