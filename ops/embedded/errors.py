"""Why an embedded broker is not there, and what its caller can do about it."""

from pathlib import Path


class EmbeddedKafkaError(Exception):
    """The embedded broker could not be had. The message is one line and says what to do."""


class EmbeddedS3Error(Exception):
    """The embedded S3 could not be had. The message is one line and says what to do."""


class JavaNotFoundError(EmbeddedKafkaError):
    """No Java of a sufficient version. Permanent until one is installed."""


class JarsUnavailableError(EmbeddedKafkaError):
    """The broker's jars could not be fetched or did not verify. A retry may help."""


class PortTakenError(EmbeddedKafkaError):
    """The port that was asked for belongs to another process."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is taken: end its owner, or ask for another port")
        self.port = port


class DataInUseError(EmbeddedKafkaError):
    """Another live broker, or its owner, holds the data folder."""

    def __init__(self, data: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{data} is in use by {owner}: stop it, or use another data folder")
        self.data = data
        self.pid = pid


class StartFailedError(EmbeddedKafkaError):
    """Java ended, or never answered. `log_tail` holds its last lines."""

    def __init__(self, what: str, log: Path, log_tail: str) -> None:
        super().__init__(f"{what}: {_cause(log_tail)} (all of it: {log})")
        self.log = log
        self.log_tail = log_tail


def _cause(said: str) -> str:
    """The line that names the cause: the last exception's own, else the last one printed."""
    lines = [line.strip() for line in said.splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "..."))]
    named = [line for line in told if "Exception" in line or "Error" in line]
    return (named or told or ["it said nothing"])[-1][:300]
