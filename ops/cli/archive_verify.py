"""`dalsegno archive verify`: is everything in the bucket what was put there?"""

from typing import Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, progress_bar


def verify(
    partition: Annotated[int, typer.Option(help="Only this one; -1: all")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Read every segment, compare every digest, and see that no events are missing between them.

    Exit code 1 with what is wrong. Needs nothing but the bucket.
    """
    from dalsegno.ops.archived import ArchiveGap, chain_of, open_archive
    from dalsegno.storage.archive.objects import ArchiveError
    from dalsegno.storage.archive.segment import SegmentCorrupt

    faults: list[str] = []
    with told(), open_archive(archive_settings()) as archive, progress_bar() as bar:
        wanted = None if partition < 0 else partition
        events = list(archive.names(wanted))
        found = [*events, *archive.state_names(wanted)]
        task = bar.add_task("reading segments", total=len(found))
        for name in found:
            try:
                archive.verify(archive.manifest(name))
            except SegmentCorrupt as error:
                faults.append(str(error))
            except ArchiveError as error:
                if error.passing:
                    raise
                faults.append(str(error))
            bar.advance(task)
        for number in sorted({int(name[:5]) for name in events}):
            try:
                chain_of(archive, number)
            except ArchiveGap as gap:
                faults.append(str(gap))
    if json:
        print_json({"segments": len(found), "faults": faults})
    else:
        for fault in faults:
            print(fault)
        print(f"{len(found)} segments, {len(faults)} faults")
    return ExitCode.FOUND if faults else ExitCode.OK
