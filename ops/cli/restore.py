"""`dalsegno restore`: a run comes back from the archive."""

from typing import Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.failures import Unavailable
from dalsegno.ops.cli.render import print_json


def restore(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    wait_s: Annotated[float, typer.Option(help="How long to wait until it is back")] = 30.0,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Bring a run's state back from the archive, as an event for it would.

    A run that is not in the archive is left as it is. Needs the bucket and a MAC key.
    """
    from dalsegno.ops.kafka.writer import AppendError
    from dalsegno.ops.restoring import NotBackError
    from dalsegno.ops.restoring import restore as bring

    settings = archive_settings()
    try:
        with told():
            found = bring(settings, run_id, wait_s)
    except (AppendError, NotBackError) as error:
        raise Unavailable(str(error)) from error
    if json:
        print_json({"run_id": run_id, **found._asdict()})
    elif found.brought:
        print(f"{run_id} is back: {found.state}")
    else:
        print(f"{run_id} is not in the archive: {found.state}")
