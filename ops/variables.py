"""Our environment variables: which there are, and which that are set nothing reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pydantic_settings import BaseSettings

from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.blob_settings import BlobSettings
from dalsegno.streams.engine.settings import EngineSettings, KafkaSecurity

_MODELS: Final = (EngineSettings, KafkaSecurity, ArchiveSettings, BlobSettings)
_ELSEWHERE: Final = (
    "DALSEGNO_BLOBS_FROM_BYTES",
    "DALSEGNO_DECISION_KEY",
    "DALSEGNO_JAVA",
    "DALSEGNO_REGISTRY_CA_FILE",
    "DALSEGNO_REGISTRY_PASSWORD",
    "DALSEGNO_REGISTRY_URL",
    "DALSEGNO_REGISTRY_USERNAME",
)
"""Read by clients, workers and single commands, not by the engine's settings."""

_KUBERNETES: Final = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)=|_PORT_\d+_\w+=|_PORT=(tcp|udp|sctp):"
)


def prefix_of(model: str) -> str:
    """What the variables of a settings class begin with, by the name of the class."""
    found = (each for each in _MODELS if each.__name__ == model)
    return _prefix(next(found, EngineSettings))


def variables() -> tuple[str, ...]:
    """Every variable that something reads, sorted."""
    found: set[str] = set(_ELSEWHERE)
    for model in _MODELS:
        for name, field in model.model_fields.items():
            kind = field.annotation
            if not (isinstance(kind, type) and issubclass(kind, BaseSettings)):
                found.add(_prefix(model) + name.upper())
    return tuple(sorted(found))


def unread(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that begins as ours do and that nothing reads. No value is in it.

    Not of those that Kubernetes sets in every pod for a service whose name begins as ours.
    """
    known = variables()
    ours = (name for name in environ if name.startswith("DALSEGNO_") and name not in known)
    lines: list[str] = []
    for name in sorted(ours):
        if _KUBERNETES.search(f"{name}={environ[name]}"):
            continue
        near = get_close_matches(name, known, n=1)
        lines.append(f"{name} is read by nothing" + (f": {near[0]}?" if near else ""))
    return lines


def _prefix(model: type[BaseSettings]) -> str:
    return model.model_config.get("env_prefix", "")
