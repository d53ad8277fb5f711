"""The life of `dev`: bring all up in order, keep it up, take it down in reverse.

1 fetch what the broker needs, 2 broker and object store, 3 topics, 4 engines, 5 environment file,
6 workers;
then watch: what ends is started again. Everything goes on where it was at the next start.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import FrameType

from dalsegno.ops.dev.child import Child
from dalsegno.ops.dev.env import write_env
from dalsegno.ops.dev.folder import DevFolder
from dalsegno.ops.dev.servers import Minder, Server, ServerEndsError
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports, is_free
from dalsegno.ops.embedded.prepare import prepare
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.ops.http import http_get

Say = Callable[[str], None]

_HTTP_PORT_FIRST = 8470
_READY_S_MAX = 60.0
_LOOK_S = 0.2
_BLOBS_FROM_BYTES = 65_536
_ARCHIVE_INTERVAL_MS = 10_000
"""In `dev` an event is archived while its author still looks."""


class DevError(Exception):
    """`dev` cannot go on. The message says where to look."""


@dataclass(frozen=True, slots=True)
class DevPlan:
    """What to run. `port`: of the broker, None for the last one or any. `archive`: with an object
    store.
    """

    folder: Path
    port: int | None
    engines: int
    partitions: int
    workers: Sequence[str]
    prefix: str
    archive: bool


class Stop:
    """Set by the first TERM, INT or HUP; a second one changes nothing, the stop is bounded."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """While inside, signals set the flag instead of ending the process."""

        def ask(_number: int, _frame: FrameType | None) -> None:
            self.asked = True

        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = [signal.signal(number, ask) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def run_dev(plan: DevPlan, create_topics: Callable[[dict[str, str], int], None], say: Say) -> None:
    """Run until a signal. `create_topics` gets the environment and the number of partitions.

    Raises DevError, EmbeddedKafkaError, EmbeddedS3Error, ChildStuckError.
    """
    folder = DevFolder.open(plan.folder)
    prepare(say)
    stop = Stop()
    children: list[Child] = []
    kafka = EmbeddedKafka(folder.kafka, port=plan.port)
    s3 = EmbeddedS3(folder.s3) if plan.archive else None
    with stop.on_signals():
        try:
            kafka.start()
            say(f"Kafka on {kafka.bootstrap}, data in {folder.path}")
            env = _environment(plan, folder, kafka)
            if s3 is not None:
                s3.start()
                say(f"S3 on {s3.endpoint}, the archive in bucket {s3.bucket}")
                env |= s3.environment()
                env["DALSEGNO_ARCHIVE_INTERVAL_MS"] = str(_ARCHIVE_INTERVAL_MS)
                env["DALSEGNO_BLOBS_FROM_BYTES"] = str(_BLOBS_FROM_BYTES)
            create_topics(env, plan.partitions)
            engines = _engines(plan, folder, env, children)
            write_env(folder.path, env)
            for url in engines:
                _await_ready(url, children, stop)
                say(f"engine ready at {url}")
            _workers(plan, folder, env, children)
            if not stop.asked:
                say("in another terminal, in this folder: dalsegno worker MODULE:FLOW")
                say("Ctrl-C stops; the next `dalsegno dev` goes on from there")
            _watch(kafka, s3, children, stop, say)
        except ServerEndsError as error:
            raise DevError(str(error)) from error
        finally:
            take_down([kafka] if s3 is None else [kafka, s3], children, say)


def take_down(servers: Sequence[Server], children: Sequence[Child], say: Say) -> None:
    """Workers, engines and servers in reverse, all of them although one fails."""
    with ExitStack() as ends:
        for server in servers:
            ends.callback(server.stop)
        for child in children:
            ends.callback(child.join)
        for child in children:
            ends.callback(child.terminate)
        with suppress(OSError):  # the terminal may be gone: that is why we stop
            say("stopping")


def _environment(plan: DevPlan, folder: DevFolder, kafka: EmbeddedKafka) -> dict[str, str]:
    return {
        "DALSEGNO_BOOTSTRAP_SERVERS": kafka.bootstrap,
        "DALSEGNO_PREFIX": plan.prefix,
        "DALSEGNO_MAC_KEYS": folder.mac_keys(),
        "DALSEGNO_DEV": "true",
    }


def _engines(
    plan: DevPlan, folder: DevFolder, env: dict[str, str], children: list[Child]
) -> list[str]:
    urls = []
    for number in range(1, plan.engines + 1):
        wanted = _HTTP_PORT_FIRST + number - 1
        port = wanted if is_free(wanted) else free_ports(1)[0]
        name = f"engine-{number}"
        child = Child(name, ["engine", "--name", name, "--port", str(port)], folder, env)
        child.start()
        children.append(child)
        urls.append(f"http://127.0.0.1:{port}")
    return urls


def _workers(plan: DevPlan, folder: DevFolder, env: dict[str, str], children: list[Child]) -> None:
    for number, flow in enumerate(plan.workers, 1):
        name = f"worker-{number}"
        child = Child(name, ["worker", flow, "--name", name], folder, env)
        child.start()
        children.append(child)


def _await_ready(url: str, children: list[Child], stop: Stop) -> None:
    limit = time.monotonic() + _READY_S_MAX
    while not stop.asked:
        if _is_ready(url):
            return
        for child in children:
            if told := child.tend():
                raise DevError(told)
        if time.monotonic() > limit:
            logs = ", ".join(str(child.log) for child in children)
            raise DevError(f"{url} was not ready in {_READY_S_MAX:.0f} s, see {logs}")
        time.sleep(_LOOK_S)


def _is_ready(url: str) -> bool:
    try:
        return http_get(f"{url}/readyz", 1.0)[0] == HTTPStatus.OK
    except OSError:
        return False


def _watch(
    kafka: EmbeddedKafka, s3: EmbeddedS3 | None, children: list[Child], stop: Stop, say: Say
) -> None:
    tended: list[Minder | Child] = [Minder("Kafka", kafka)]
    if s3 is not None:
        tended.append(Minder("S3", s3))
    tended.extend(children)
    while not stop.asked:
        for each in tended:
            if told := each.tend():
                say(told)
        time.sleep(_LOOK_S)
