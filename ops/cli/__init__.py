"""The command line `dalsegno`."""

import sys


def main() -> None:
    """Entry point of the console script; exits with a code of `dalsegno.ops.cli.failures`."""
    try:
        worked = _work_at_once()
        from dalsegno.ops.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dalsegno"):
            raise
        print(
            f"dalsegno: the command line needs {error.name}: pip install 'dalsegno[service]'",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(worked if worked is not None else run(sys.argv[1:]))


def _work_at_once() -> int | None:
    """The exit code of a worker that was started plainly; None for every other command."""
    from dalsegno.ops.cli.quick_worker import run

    try:
        return 0 if run(sys.argv[1:]) else None
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised on if unforeseen
        from dalsegno.ops.cli.app import ended_by

        return ended_by(error)
