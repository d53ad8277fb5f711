"""What commands on the archive share: its settings, and its failures as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dalsegno.ops.cli.failures import CommandError, Refused, Unavailable, UsageFault
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.streams.engine.settings import EngineSettings


def archive_settings() -> EngineSettings:
    """The settings, with a bucket in them. Raises UsageFault."""
    settings = read_settings()
    if not settings.archive.enabled:
        raise UsageFault("there is no archive: set DALSEGNO_ARCHIVE_BUCKET (docs/archive.md)")
    return settings


@contextmanager
def told() -> Iterator[None]:
    """Failures of the archive, each in one line with its exit code."""
    from dalsegno.ops.archived import ArchiveGap
    from dalsegno.ops.whole_log import NoArchive
    from dalsegno.storage.archive.objects import ArchiveError, Trouble
    from dalsegno.storage.archive.records import RecordsCorrupt
    from dalsegno.storage.archive.segment import SegmentCorrupt

    try:
        yield
    except ArchiveError as error:
        if error.passing:
            raise Unavailable(str(error)) from error
        if error.trouble is Trouble.DENIED:
            raise Refused(str(error)) from error
        raise UsageFault(str(error)) from error
    except NoArchive as error:
        raise UsageFault(str(error)) from error
    except (ArchiveGap, RecordsCorrupt, SegmentCorrupt) as error:
        raise CommandError(str(error)) from error
