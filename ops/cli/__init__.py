"""The command line `dalsegno`."""

import sys


def main() -> None:
    """Entry point of the console script; exits with a code of `dalsegno.ops.cli.failures`."""
    try:
        from dalsegno.ops.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dalsegno"):
            raise
        print(
            f"dalsegno: the command line needs {error.name}: pip install 'dalsegno[service]'",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
