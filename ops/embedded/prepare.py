"""`python -m dalsegno.ops.embedded.prepare`: everything a first start would wait for, done once.

1 find Java, 2 fetch the jars, 3 start a broker and stop it so that it writes its class archive.
Safe to repeat, and at once when done.
"""

import fcntl
import os
import sys
import time
from collections.abc import Callable

from dalsegno.ops.embedded.broker import EmbeddedKafka
from dalsegno.ops.embedded.errors import EmbeddedKafkaError
from dalsegno.ops.embedded.jars import KAFKA_VERSION, find_jars
from dalsegno.ops.embedded.java import find_java
from dalsegno.ops.embedded.jvm import Jvm
from dalsegno.ops.embedded.paths import cache_dir


def prepare(progress: Callable[[str], None], version: str = KAFKA_VERSION) -> None:
    """Fetch and build what is missing; `progress` gets a line per piece of work.

    Two at once wait for each other. Raises EmbeddedKafkaError.
    """
    with (cache_dir() / "prepare.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        java = find_java()
        jars = find_jars(version, progress)
        archive = Jvm(java, tuple(jars), "256m").archive
        if not archive.exists():
            progress(f"writing the class archive of Java {java.feature} (some 15 s, once)")
            _write_archive(version)


def _write_archive(version: str) -> None:
    kafka = EmbeddedKafka(version=version)
    fresh = kafka.jvm.archive.with_suffix(f".{os.getpid()}")
    try:
        kafka.start(write_archive=fresh)
        kafka.create_topic("warm-up", partitions=2)
        kafka.stop()
        if fresh.exists():
            fresh.replace(kafka.jvm.archive)  # whole archives only
    finally:
        kafka.stop()
        for left in fresh.parent.glob(f"{fresh.name}*"):  # of a training that was killed
            left.unlink(missing_ok=True)


def main() -> int:
    """Exit code 0 when a broker can start, 1 with one line otherwise."""
    began = time.monotonic()
    worked: list[str] = []

    def progress(line: str) -> None:
        worked.append(line)
        print(f"dalsegno: {line}", flush=True)  # noqa: T201 - this is a command

    try:
        prepare(progress)
    except EmbeddedKafkaError as error:
        print(f"dalsegno: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if worked:
        progress(f"the embedded Kafka is ready ({time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
