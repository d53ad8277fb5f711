"""`dalsegno archive rebuild`: runs into an empty cluster, when Kafka is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.failures import ExitCode, Refused, Unavailable, UsageFault
from dalsegno.ops.cli.render import plain, print_json, print_table, progress_bar, when

if TYPE_CHECKING:
    from dalsegno.ops.rebuild import Rebuilt
    from dalsegno.streams.engine.settings import EngineSettings


def rebuild(
    from_prefix: Annotated[
        str, typer.Option("--from", metavar="PREFIX", help="Of the lost cluster's archive")
    ],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Bring every run of a lost cluster into this one, which is empty, from the archive.

    Same prefix of topics, same partition count; engines archive under another prefix from now on.
    Exit code 1 when a run could not be brought. Broken off, it goes on at the next call.
    """
    settings = archive_settings()
    old, new = from_prefix.rstrip("/"), settings.archive_prefix.rstrip("/")
    if old == new:
        raise UsageFault(
            "the new cluster must not archive among the old one's segments: set "
            "DALSEGNO_ARCHIVE_PREFIX to another prefix, here and for its engines"
        )
    blobs, found = _brought(settings, old, new)
    left = [(each.partition, *run) for each in found for run in each.left]
    if json:
        print_json([plain(each._asdict()) for each in found])
    else:
        _show(blobs, found)
        print_table(("partition", "run", "not brought"), left, empty="every run was brought")
    return ExitCode.FOUND if left else ExitCode.OK


def _brought(settings: EngineSettings, old: str, new: str) -> tuple[int, list[Rebuilt]]:
    """How many blobs were copied, and what came of each partition."""
    from contextlib import ExitStack, closing

    from dalsegno.ops.archived import open_archive
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.kafka.writer import AppendError, NoKeyError, Writer
    from dalsegno.ops.rebuild import RebuildRefused, check, copy_blobs
    from dalsegno.ops.rebuild import rebuild as bring
    from dalsegno.storage.archive.s3 import S3Objects

    with told(), ExitStack() as stack:
        archive = stack.enter_context(open_archive(settings, old))
        objects = stack.enter_context(closing(S3Objects(settings.archive.s3())))
        reader = stack.enter_context(Reader(settings))
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("folding", total=None)
        try:
            check(settings, archive, reader)
            blobs = copy_blobs(objects, old, new)
            writer = Writer(settings)
            found = bring(settings, archive, reader, writer, lambda n: bar.advance(task, n))
            return blobs, list(found)
        except RebuildRefused as error:
            raise Refused(str(error)) from error
        except NoKeyError as error:
            raise UsageFault(str(error)) from error
        except AppendError as error:
            raise Unavailable(str(error)) from error


def _show(blobs: int, found: Sequence[Rebuilt]) -> None:
    print_table(
        ("partition", "archived to", "last event", "runs", "ended", "there before"),
        (
            (each.partition, each.end, when(each.end_ms), each.runs, each.ended, each.before)
            for each in found
        ),
        empty="no partitions",
    )
    print(f"{blobs} blobs were copied")
    print("what came behind the last event was not archived, and is lost with the old cluster")
