"""`dalsegno restore`: a run comes back from the archive."""

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.failures import CommandError, Unavailable
from dalsegno.ops.cli.render import print_json, progress_bar
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.ops.restoring import Here


def restore(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    wait_s: Annotated[float, typer.Option(help="How long to wait until it is back")] = 30.0,
    from_events: Annotated[
        bool,
        typer.Option("--from-events", help="Fold the state anew: the archive has lost it"),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Bring a run's state back from the archive, as an event for it would.

    A run that is not in the archive is left as it is. Needs the bucket and a MAC key. With
    `--from-events` the partition's events are folded, those of Kafka or of the archive, up to the
    one by which the run left; only the state of exactly the digest that it left with is taken.
    """
    from dalsegno.ops.kafka.writer import AppendError
    from dalsegno.ops.refolding import NotRefoldedError
    from dalsegno.ops.restoring import LeftAgainError, NotBackError, StateLostError

    try:
        with told():
            found = (_from_events if from_events else _from_archive)(run_id, wait_s)
    except StateLostError as error:
        raise CommandError(
            f"{error}; put the objects back, or try `dalsegno restore {run_id} --from-events`"
        ) from error
    except NotRefoldedError as error:
        raise CommandError(str(error)) from error
    except (AppendError, NotBackError, LeftAgainError) as error:
        raise Unavailable(str(error)) from error
    if json:
        print_json({"run_id": run_id, **found._asdict()})
    elif found.brought:
        print(f"{run_id} is back: {found.state}")
    else:
        print(f"{run_id} is not in the archive: {found.state}")


def _from_archive(run_id: str, wait_s: float) -> "Here":
    from functools import partial

    from dalsegno.ops.restoring import fetched
    from dalsegno.ops.restoring import restore as bring

    settings = archive_settings()
    return bring(settings, run_id, wait_s, partial(fetched, settings))


def _from_events(run_id: str, wait_s: float) -> "Here":
    from dalsegno.ops.refolding import parts_from_events
    from dalsegno.ops.restoring import restore as bring

    settings = read_settings()
    with progress_bar() as bar:
        task = bar.add_task("folding", total=None)
        return bring(
            settings,
            run_id,
            wait_s,
            lambda left: parts_from_events(
                settings, left.run_id, left.digest, lambda n: bar.advance(task, n)
            ),
        )
