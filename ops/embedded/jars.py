"""The broker's class path: jars by Maven coordinates, fetched once, checked at every use."""

import json
import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dalsegno.ops.embedded.errors import JarsUnavailableError
from dalsegno.ops.embedded.paths import cache_dir

KAFKA_VERSION = "4.1.1"

# A broker never loads these (seen by class-load logging): 11 of 43 MB. jose4j would be needed for
# OAuth on the broker's side, which an embedded broker does not offer.
_UNUSED = (
    "scala-reflect",
    "commons-beanutils",
    "commons-collections",
    "commons-digester",
    "commons-logging",
    "jose4j",
    "snakeyaml",
    "jspecify",
    "log4j-core",
)
# 15 kB: starts much quicker than log4j, and is quiet at "warn".
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_FETCH_TIMEOUT_S = 120
_PARALLEL_FETCHES = 8


def find_jars(
    version: str = KAFKA_VERSION, progress: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Paths of the jars of a broker of this version; fetched on first use (5-30 s, 35 MB).

    Raises JarsUnavailableError when they cannot be fetched or fail their digests.
    """
    listing = cache_dir() / f"kafka-{version}.classpath.json"
    known = _read(listing)
    if known is not None:
        return known
    progress(f"fetching the jars of Apache Kafka {version}")
    coordinates = (f"org.apache.kafka:kafka_2.13:{version}", _LOGGING)
    jars = fetch_jars(coordinates, f"Apache Kafka {version}", without=_UNUSED)
    fresh = listing.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({path: Path(path).stat().st_size for path in jars}, indent=0))
    fresh.replace(listing)  # atomic: two first runs may race
    return jars


def jars_cached() -> bool:
    """Whether `find_jars` would return at once."""
    return _read(cache_dir() / f"kafka-{KAFKA_VERSION}.classpath.json") is not None


def _read(listing: Path) -> list[str] | None:
    try:
        sizes: dict[str, int] = json.loads(listing.read_text())
        whole = all(Path(path).stat().st_size == size for path, size in sizes.items())
    except (OSError, ValueError):
        return None  # none yet, or a file is gone: fetched again
    return list(sizes) if whole and sizes else None


def fetch_jars(
    coordinates: Iterable[str], what: str, *, without: tuple[str, ...] = ()
) -> list[str]:
    """Paths of the jars of these Maven coordinates (`group:artifact:version`) and of all they need,
    but for artifacts whose names begin as in `without`. Those fetched before are not fetched again.

    Raises JarsUnavailableError, which names `what`.
    """
    try:
        import requests
        from jgo.maven import MavenContext
        from jgo.parse import Coordinate
    except ImportError as error:
        raise JarsUnavailableError(
            f"to fetch {what}, {error.name} is needed: pip install 'dalsegno[service]'"
        ) from error
    context = MavenContext(
        repo_cache=cache_dir() / "maven",
        remote_repos=repositories(),
        timeout=_FETCH_TIMEOUT_S,
    )
    wanted = [
        context.create_dependency(replace(Coordinate.parse(text), scope="compile"))
        for text in coordinates
    ]
    try:
        with _mismatches_are_errors():
            roots, rest = context.resolver.resolve(wanted)
            needed = [*roots, *(d for d in rest if d.scope in ("compile", "runtime"))]
            artifacts = [d.artifact for d in needed]
            kept = [a for a in artifacts if not a.artifactId.startswith(without)]
            with ThreadPoolExecutor(_PARALLEL_FETCHES) as pool:
                return sorted({str(path) for path in pool.map(lambda a: a.resolve(), kept)})
    except (requests.RequestException, OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise JarsUnavailableError(
            f"the jars of {what} could not be fetched: {reason}; "
            "check the network or name a mirror in ~/.m2/settings.xml"
        ) from error


def repositories(settings: Path | None = None) -> dict[str, str]:
    """Maven repositories by name: the client's mirror if it has one, else jgo's own settings.

    jgo does not read Maven's settings, so a mirror of the central repository is looked up here.
    """
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    settings = settings or Path("~/.m2/settings.xml").expanduser()
    for mirror in ET.parse(settings).iter() if settings.exists() else ():  # noqa: S314 - the user's own file
        if mirror.tag.rpartition("}")[2] != "mirror":
            continue
        fields = {c.tag.rpartition("}")[2]: (c.text or "").strip() for c in mirror}
        if fields.get("mirrorOf", "").split(",")[0] in ("*", "central", "external:*"):
            return {"central": fields["url"]}
    return {"central": MAVEN_CENTRAL_URL, **GlobalSettings.load().repositories}


@contextmanager
def _mismatches_are_errors() -> Iterator[None]:
    """jgo only warns when a digest does not match: such a jar must not run."""
    seen: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Checksum mismatch" in record.getMessage():
                seen.append(record.getMessage())

    logger = logging.getLogger("jgo.maven._resolver")
    handler = Collect(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    if seen:
        raise JarsUnavailableError(f"{seen[0]}: delete {cache_dir() / 'maven'} and try again")
