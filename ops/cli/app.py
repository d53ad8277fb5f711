"""The tree of commands, and the one place where their failures become a line and an exit code."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dalsegno import __version__
from dalsegno.ops.cli import (
    archive_list,
    archive_rebuild,
    archive_show,
    archive_verify,
    audit,
    blobs_list,
    blobs_verify,
    check,
    context_migrate,
    dead_letters_list,
    dead_letters_requeue,
    dead_letters_show,
    dev,
    diff,
    doctor,
    engine,
    erase,
    escalations_decide,
    escalations_list,
    escalations_show,
    escalations_webhooks,
    faults_list,
    faults_show,
    faults_steer,
    keys_new,
    plan,
    policy_apply,
    policy_show,
    recovery_freeze,
    recovery_preview,
    recovery_release,
    replay,
    report,
    restore,
    rules_activate,
    rules_show,
    runs,
    schemas_check,
    schemas_export,
    schemas_register,
    schemas_show,
    show,
    start,
    topics_check,
    topics_create,
    verify,
    worker,
)
from dalsegno.ops.cli.failures import CommandError, ExitCode
from dalsegno.ops.dev.env import DATA_FOLDER, adopt_env

# The base of all usage errors; its own home differs between versions of typer.
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

_EPILOG = (
    "Exit codes: 0 done, 1 it worked and found something wrong, 2 arguments, settings or a file "
    "are wrong, or a broker does not let the user in or do this, 3 Kafka, an engine or a package "
    "could not be reached, or did not answer in time, 4 the service, or a rule of safety, "
    "refused, 5 there is no such run, flow, dead letter or schema, 130 ended by Ctrl-C. "
    "`dalsegno engine` has its own."
)
_ALONE: tuple[Callable[..., int | None], ...] = (
    dev.dev,
    engine.engine,
    worker.worker,
    start.start,
    runs.runs,
    show.show,
    plan.plan,
    replay.replay,
    diff.diff,
    audit.audit,
    erase.erase,
    restore.restore,
    report.report,
    verify.verify,
    check.check,
    doctor.doctor,
)
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., int | None]]]] = {
    "topics": (
        "The topics of the contract.",
        {"create": topics_create.create, "check": topics_check.check},
    ),
    "archive": (
        "Segments of events, transitions and states of runs in S3.",
        {
            "list": archive_list.list_,
            "rebuild": archive_rebuild.rebuild,
            "show": archive_show.show,
            "verify": archive_verify.verify,
        },
    ),
    "blobs": (
        "Large values in S3. Needs nothing but the bucket.",
        {"list": blobs_list.list_, "verify": blobs_verify.verify},
    ),
    "context": (
        "The contexts of runs, and the schemas that code declares for them.",
        {"migrate": context_migrate.migrate},
    ),
    "policy": (
        "The settings in the log that decide about runs.",
        {"show": policy_show.show, "apply": policy_apply.apply},
    ),
    "recovery": (
        "Freeze recovery, look at what would run, and release it.",
        {
            "freeze": recovery_freeze.freeze,
            "preview": recovery_preview.preview,
            "release": recovery_release.release,
        },
    ),
    "rules": (
        "The rules that the fold decides by.",
        {"show": rules_show.show, "activate": rules_activate.activate},
    ),
    "dead-letters": (
        "Records that were put aside.",
        {
            "list": dead_letters_list.list_letters,
            "show": dead_letters_show.show,
            "requeue": dead_letters_requeue.requeue,
        },
    ),
    "escalations": (
        "What waits for people, and their decisions.",
        {
            "list": escalations_list.list_packages,
            "show": escalations_show.show,
            "decide": escalations_decide.decide,
            "webhooks": escalations_webhooks.list_webhooks,
        },
    ),
    "faults": (
        "Fault points: dependencies that failed, and the pace of their recovery.",
        {
            "list": faults_list.list_points,
            "show": faults_show.show,
            "open": faults_steer.open_point,
            "close": faults_steer.close_point,
            "limit": faults_steer.limit_point,
        },
    ),
    "keys": (
        "Keys that people sign decisions with.",
        {"new": keys_new.new},
    ),
    "schemas": (
        "The wire contract.",
        {
            "check": schemas_check.check,
            "export": schemas_export.export,
            "register": schemas_register.register,
            "show": schemas_show.show,
        },
    ),
}


def build() -> typer.Typer:
    """The application, fresh."""
    app = typer.Typer(
        name="dalsegno",
        help="Recovery for multi-step work on Kafka.",
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_settings)
    for command in _ALONE:
        app.command(command.__name__, short_help=_first_sentence(command))(command)
    for name, (text, commands) in _GROUPS.items():
        group = typer.Typer(help=text, short_help=text, no_args_is_help=True, rich_markup_mode=None)
        for verb, command in commands.items():
            group.command(verb, short_help=_first_sentence(command))(command)
        app.add_typer(group, name=name)
    return app


def _first_sentence(command: Callable[..., int | None]) -> str:
    """Of its help, whole: typer would cut it off for the list."""
    text = " ".join((command.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".") + "."


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"dalsegno {__version__}")
        raise typer.Exit


def _settings(
    *,
    bootstrap_servers: Annotated[
        str, typer.Option(help="host:port,... of the brokers [env: DALSEGNO_BOOTSTRAP_SERVERS]")
    ] = "",
    prefix: Annotated[str, typer.Option(help="Prefix of the topics [env: DALSEGNO_PREFIX]")] = "",
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if bootstrap_servers:
        os.environ["DALSEGNO_BOOTSTRAP_SERVERS"] = bootstrap_servers
    if prefix:
        os.environ["DALSEGNO_PREFIX"] = prefix
    adopt_env(os.environ, Path(DATA_FOLDER))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code. What is not foreseen keeps its traceback."""
    try:
        result = build()(arguments, prog_name="dalsegno", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised on if unforeseen
        return ended_by(error)
    return result if isinstance(result, int) else ExitCode.OK


def ended_by(error: BaseException) -> int:
    """The exit code of a command that raised this, told in one line. Raises what is unforeseen."""
    match error:
        case CommandError():
            return _fail(str(error), error.code)
        case _ClickError():
            return _fail_usage(error)
        case KeyboardInterrupt() | typer.Abort():
            return _fail("interrupted", ExitCode.INTERRUPTED)
        case Exception() if (known := _known(error)) is not None:
            from dalsegno.ops.kafka.words import kafka_words

            return _fail(kafka_words(error) or f"{error}", known)
    raise error


def _fail(line: str, code: ExitCode) -> int:
    print(f"dalsegno: {' '.join(line.split())}", file=sys.stderr)
    return code


def _fail_usage(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context else error)
        return ExitCode.USAGE
    tell = getattr(error, "format_message", error.__str__)
    where = context.command_path if context else "dalsegno"
    return _fail(f"{tell()} (see {where} --help)", ExitCode.USAGE)


def _known(error: Exception) -> ExitCode | None:
    """The code for an error of a library or a lower layer, looked up only once one was raised."""
    from confluent_kafka import KafkaError, KafkaException
    from pydantic import ValidationError

    from dalsegno.ops.embedded.errors import EmbeddedKafkaError
    from dalsegno.ops.flow_loader import FlowLoadError
    from dalsegno.ops.kafka.engines import EngineError, NoSuchRunError
    from dalsegno.ops.kafka.fault_points import NoSuchPointError
    from dalsegno.ops.kafka.letters import AlreadyRequeuedError, NoSuchLetterError
    from dalsegno.ops.kafka.reader import ReadError
    from dalsegno.ops.kafka.writer import AppendError, NoKeyError
    from dalsegno.ops.people.deciding import NoOutcomeError
    from dalsegno.ops.people.frozen import FrozenListError
    from dalsegno.ops.people.keys import KeyFileError
    from dalsegno.ops.people.packages import NoSuchPackageError
    from dalsegno.ops.policy_file import PolicyFileError
    from dalsegno.schemas.errors import ContractError, KeyMissing, SchemaMissing
    from dalsegno.streams.client import errors as client
    from dalsegno.streams.client.refused import rights_refusal
    from dalsegno.streams.client.schema_errors import FieldRefused, SchemaError
    from dalsegno.streams.engine.errors import (
        BrokerLostError,
        OutcomeUnknownError,
        RestoreError,
        StartRefusedError,
    )
    from dalsegno.streams.engine.errors import EngineError as EngineFault

    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if isinstance(cause, KafkaError) and rights_refusal(cause) is not None:
        return ExitCode.USAGE
    table: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
        ((NoSuchRunError, NoSuchLetterError), ExitCode.NOT_FOUND),
        ((NoSuchPackageError, NoSuchPointError), ExitCode.NOT_FOUND),
        ((client.RunRefused, client.ReportRefused, client.WorkerFenced), ExitCode.REFUSED),
        ((AlreadyRequeuedError, StartRefusedError), ExitCode.REFUSED),
        ((client.SettingsError, client.FlowError, client.NameInUse), ExitCode.USAGE),
        ((SchemaError, FieldRefused), ExitCode.USAGE),
        ((FlowLoadError, NoKeyError, PolicyFileError, ValidationError), ExitCode.USAGE),
        ((KeyMissing, SchemaMissing, ContractError), ExitCode.USAGE),
        ((KeyFileError, FrozenListError), ExitCode.USAGE),
        ((NoOutcomeError,), ExitCode.UNAVAILABLE),
        ((RestoreError, OutcomeUnknownError, BrokerLostError), ExitCode.UNAVAILABLE),
        ((EngineFault,), ExitCode.FOUND),
        ((ReadError, AppendError, EngineError, client.ClientError), ExitCode.UNAVAILABLE),
        ((KafkaException, EmbeddedKafkaError, TimeoutError), ExitCode.UNAVAILABLE),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), None)
