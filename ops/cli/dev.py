"""`dalsegno dev`: a Kafka, an S3 and an engine on this machine, in one command."""

from pathlib import Path
from typing import Annotated

import typer

from dalsegno.ops.cli.failures import CommandError, Unavailable, UsageFault
from dalsegno.ops.dev.env import DATA_FOLDER


def dev(
    *,
    folder: Annotated[Path, typer.Option(help="Data; the next start goes on from it")] = Path(
        DATA_FOLDER
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of Kafka; 0: the last one, or any")
    ] = 0,
    engines: Annotated[int, typer.Option(min=1, max=16, help="How many engines")] = 1,
    partitions: Annotated[int, typer.Option(min=1, max=256, help="Of new topics")] = 4,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:FLOW", help="Also run a worker of it; may be repeated"),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of the topics")] = "dalsegno",
    archive: Annotated[bool, typer.Option(help="Also run an S3, and archive to it")] = True,
) -> None:
    """Run an embedded Kafka, an S3 and engines until Ctrl-C; what ends is started again.

    Makes topics and a MAC key. Other commands in the same folder find it by themselves.
    """
    from dalsegno.ops.cli.topics_create import create_for_dev
    from dalsegno.ops.dev.child import ChildStuckError
    from dalsegno.ops.dev.folder import DevFolder
    from dalsegno.ops.dev.supervise import DevError, DevPlan, run_dev
    from dalsegno.ops.embedded.errors import EmbeddedS3Error

    try:
        DevFolder.open(folder)
    except OSError as error:
        raise UsageFault(f"--folder {folder}: {error.strerror}") from error
    plan = DevPlan(folder, port or None, engines, partitions, tuple(worker or ()), prefix, archive)
    try:
        run_dev(plan, create_for_dev, lambda line: print(f"dalsegno: {line}", flush=True))
    except (ChildStuckError, EmbeddedS3Error) as error:
        raise Unavailable(str(error)) from error
    except DevError as error:
        raise CommandError(str(error)) from error
