"""The Java command line of the broker, and the class archive that makes its start quick."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from dalsegno.ops.embedded.java import AOT_FEATURE_MIN, Java
from dalsegno.ops.embedded.paths import cache_dir


@dataclass(frozen=True, slots=True)
class Jvm:
    """How to run a main class of the broker. `heap` in Java's notation (`256m`)."""

    java: Java
    jars: tuple[str, ...]
    heap: str

    @property
    def _flags(self) -> list[str]:
        # One compiler and the serial collector: a third of the CPU time to the first ack. Out of
        # memory is a clear end rather than a broker half alive.
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        if self.java.feature >= AOT_FEATURE_MIN:
            flags.append("--sun-misc-unsafe-memory-access=allow")  # else warnings at each stop
        return flags

    @property
    def archive(self) -> Path:
        """Where the class archive of exactly this Java, these jars and these flags belongs,
        whatever the heap.

        Java ignores one that does not fit, so a wrong one costs time only.
        """
        fit = repr((self.java.identity, self.java.path, self.jars, self._flags)).encode()
        suffix = "aot" if self.java.feature >= AOT_FEATURE_MIN else "jsa"
        return cache_dir() / f"{hashlib.sha256(fit).hexdigest()[:16]}.{suffix}"

    def command(self, *main: str, write_archive: Path | None = None) -> list[str]:
        """Arguments that run `main`; with `write_archive` a clean stop writes one there."""
        aot = self.java.feature >= AOT_FEATURE_MIN
        extra: list[str] = []
        if write_archive is not None:
            extra = [f"-XX:{'AOTCacheOutput' if aot else 'ArchiveClassesAtExit'}={write_archive}"]
        elif self.archive.exists():
            use = "AOTCache" if aot else "SharedArchiveFile"
            extra = [f"-XX:{use}={self.archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]
        return [
            self.java.path,
            f"-Xmx{self.heap}",
            *self._flags,
            *extra,
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dlog4j2.statusLoggerLevel=OFF",
            "-cp",
            os.pathsep.join(self.jars),
            *main,
        ]
