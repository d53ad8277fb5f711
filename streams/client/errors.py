"""Errors of the SDK: whose fault it is, and what the caller should do.

`FlowError`, `SettingsError`, `NameInUse`: the program's own; mend it, a retry cannot help.
`DeliveryFailed`, `QueueFull`: Kafka could not be reached in time; the same call may be repeated,
every report is idempotent. `EngineUnavailable`: no engine could answer in time; ask again.
`RunRefused`, `ReportRefused`: the service has decided; read `reason`. `UnknownRun`: there is none.
`VersionNotKept`: not any more, or never: the log has what there was.
"""

from __future__ import annotations

from dalsegno.schemas.outputs import Answer


class ClientError(Exception):
    """Whatever the SDK raises by itself."""


class FlowError(ClientError, ValueError):
    """A flow is declared wrongly. `flow` and `step` say where."""

    def __init__(self, flow: str, step: str, detail: str) -> None:
        super().__init__(f"flow {flow!r}{f', step {step!r}' if step else ''}: {detail}")
        self.flow = flow
        self.step = step


class SettingsError(ClientError, ValueError):
    """A setting is missing or wrong, or a topic that the contract needs does not exist."""


class NameInUse(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """Another live process on this host has the worker's name: choose another, or stop that one."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"worker name {name!r} is taken by a live process on this host ({path})")
        self.name = name


class ClosedError(ClientError, RuntimeError):
    """The client was closed before the call."""


class ForkedError(ClientError, RuntimeError):
    """The client was made before a fork: make a new one in the child, nothing was sent."""

    def __init__(self, parent: int, child: int) -> None:
        super().__init__(
            f"made in process {parent} and used after a fork in {child}: "
            "threads and sockets do not survive a fork, make a new client in the child"
        )


class DeliveryFailed(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """A record was not acknowledged in time. It may or may not be in the log: repeat the same call.

    `code` is Kafka's name for the error; `retriable` is false where only a change of settings
    helps.
    """

    def __init__(
        self, topic: str, key: bytes, code: str, detail: str, retriable: bool = True
    ) -> None:
        super().__init__(f"{topic} key {key.decode(errors='replace')!r}: {code}: {detail}")
        self.topic = topic
        self.key = key
        self.code = code
        self.retriable = retriable


class QueueFull(DeliveryFailed):
    """The local queue stayed full for the whole wait: nothing of this record was sent."""


class RunRefused(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """The service refused to start the run. `reason` is a code, `detail` a sentence with the
    place.
    """

    def __init__(self, run_id: str, reason: str, detail: str) -> None:
        super().__init__(f"run {run_id!r} refused: {reason}{f': {detail}' if detail else ''}")
        self.run_id = run_id
        self.reason = reason
        self.detail = detail


class ReportRefused(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """A report or request about a run was refused, superseded or cancelled (`outcome`).

    A superseded attempt must stop: `current_epoch` (or a later attempt of the service) owns the
    step.
    """

    def __init__(self, answer: Answer) -> None:
        where = f"run {answer.run_id!r}{f', step {answer.step!r}' if answer.step else ''}"
        why = f"{answer.reason}: {answer.detail}" if answer.detail else answer.reason
        super().__init__(f"{answer.kind} of {where}: {answer.answer}: {why}")
        self.run_id = answer.run_id
        self.step = answer.step
        self.kind = answer.kind
        self.outcome = answer.answer
        self.reason = answer.reason
        self.detail = answer.detail
        self.current_epoch = answer.current_epoch


class UnknownRun(ClientError, LookupError):  # noqa: N818 - says what is the case
    """The owner of its partition knows no such run: it was never started, or ended so long ago that
    nothing is left of it.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"no run {run_id!r}: it was not started under this prefix, or ended so long ago that "
            "only the transitions tell of it"
        )
        self.run_id = run_id


class VersionNotKept(ClientError, LookupError):  # noqa: N818 - says what is the case
    """The run's owner does not keep that version any more, or the run never had it: `detail` says
    which. `newest`: the run's version, 0 if it has ended. `dalsegno show --at` folds the log.
    """

    def __init__(self, run_id: str, version: int, detail: str, newest: int) -> None:
        super().__init__(f"run {run_id!r} at version {version}: {detail}")
        self.run_id = run_id
        self.version = version
        self.detail = detail
        self.newest = newest


class EngineUnavailable(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """No engine gave an answer in time. A retry may help.

    `progress`: the share of the partition's state that its owner has read back, if it is restoring.
    """

    def __init__(self, detail: str, progress: float | None = None) -> None:
        super().__init__(detail)
        self.progress = progress


class WaitTimeout(ClientError, TimeoutError):  # noqa: N818 - says what is the case
    """No answer within the time given. What was sent is in the log and stays in force."""


class ReportsLost(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """A worker was stopped and `count` of its reports were not acknowledged by the end.

    Whether they are in the log is open. Steps whose reports are not there are done again, by
    another attempt.
    """

    def __init__(self, name: str, count: int) -> None:
        super().__init__(
            f"worker {name!r} stopped with {count} reports that no broker has acknowledged: "
            "the steps that they are about are done again if the log does not have them"
        )
        self.name = name
        self.count = count


class WorkerFenced(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """Another process joined under this worker's name: all that was held is abandoned. Exit."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"worker {name!r} was fenced: {detail}")
        self.name = name
