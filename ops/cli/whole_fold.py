"""What commands share that fold whole partitions: the archive if there is one, Kafka behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.render import progress_bar
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.ops.folding import Folded
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.schemas.blob import Blob
    from dalsegno.storage.archive.archive import Archive
    from dalsegno.storage.blobs.store import BlobStore
    from dalsegno.streams.engine.settings import EngineSettings


class WholeFold:
    """Folds partitions from their first event on. `count`: how many there are."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        archive: Archive | None,
        reader: Reader | None,
        blobs: BlobStore | None,
        count: int,
        advance: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._reader = reader
        self._blobs = blobs
        self._advance = advance
        self.count = count

    def partition(self, number: int, *, versions: bool = False) -> Iterator[Folded]:
        """With `versions` it notes those of its runs. Raises `ArchiveGap` where events are neither
        archived nor in Kafka.
        """
        from dalsegno.ops.archived import chain_of
        from dalsegno.ops.folding import fold_records
        from dalsegno.ops.whole_log import whole_log

        chain = chain_of(self._archive, number) if self._archive is not None else []
        raw = whole_log(
            self._settings,
            number,
            archive=self._archive,
            chain=chain,
            reader=self._reader,
            progress=self._advance,
        )
        return fold_records(self._settings, raw, number, self.count, versions=versions)

    def blobs_of(self, number: int) -> Callable[[Blob], bytes]:
        """Reads large values of a partition's contexts; raises `BlobUnread` without a bucket."""
        from dalsegno.ops.migrating import no_store

        return no_store if self._blobs is None else partial(self._blobs.get, number)


@contextmanager
def whole_fold(*, archive_only: bool) -> Iterator[WholeFold]:
    """Opens the archive, if the settings have one, and Kafka unless `archive_only`."""
    from dalsegno.ops.archived import open_archive, partitions_of
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.streams.engine.blob_settings import BlobSettings, open_blobs

    settings = archive_settings() if archive_only else read_settings()
    with told(), ExitStack() as stack:
        archive = blobs = None
        if settings.archive.enabled:
            opened = open_blobs(settings.archive, settings.archive_prefix, BlobSettings())
            if opened is not None:
                stack.callback(opened[0].close)
                blobs = opened[1]
            archive = stack.enter_context(open_archive(settings))
        reader = None if archive_only else stack.enter_context(Reader(settings))
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("folding", total=None)
        yield WholeFold(
            settings,
            archive=archive,
            reader=reader,
            blobs=blobs,
            count=partitions_of(archive, reader, settings),
            advance=lambda n: bar.advance(task, n),
        )
