"""The settings of a command: the environment, and what its options override."""

from typing import Any

from pydantic import ValidationError

from dalsegno.ops.cli.failures import UsageFault
from dalsegno.streams.engine.settings import EngineSettings


def read_settings(**overrides: object) -> EngineSettings:
    """Options that were given come first, then `DALSEGNO_…`. Raises UsageFault in one line."""
    given: dict[str, Any] = {k: v for k, v in overrides.items() if v not in (None, "", False)}
    try:
        return EngineSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]) or "settings"
        raise UsageFault(f"DALSEGNO_{name.upper()}: {first['msg']}") from error
