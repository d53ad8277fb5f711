"""How commands fail: one line that says what to do, and an exit code that scripts may rely on.

The codes are documented in docs/cli.md.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script learns from a command."""

    OK = 0
    FOUND = 1
    """It worked and found something wrong: differences, faults, incompatibilities, a run that did
    not succeed.
    """
    USAGE = 2
    """Arguments, settings or a file are wrong, or a broker does not let the user in or do this:
    mend it, a retry cannot help.
    """
    UNAVAILABLE = 3
    """Kafka, an engine or a package could not be reached, or did not answer in time: a retry may
    help.
    """
    REFUSED = 4
    """The service, or a rule of safety, refused."""
    NOT_FOUND = 5
    """There is no such run, flow, dead letter or schema."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


class CommandError(Exception):
    """Ends a command with one line on standard error. `code` is the process's exit code."""

    code = ExitCode.FOUND


class UsageFault(CommandError):  # noqa: N818 - names whose fault it is
    """The caller's arguments, settings or files."""

    code = ExitCode.USAGE


class Unavailable(CommandError):  # noqa: N818 - says what is the case
    """Something this command needs does not answer."""

    code = ExitCode.UNAVAILABLE


class Refused(CommandError):  # noqa: N818 - says what is the case
    """The service, or a rule of safety, said no."""

    code = ExitCode.REFUSED


class NotFound(CommandError):  # noqa: N818 - says what is the case
    """The thing that was named does not exist."""

    code = ExitCode.NOT_FOUND
