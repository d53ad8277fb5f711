"""The settings of a command: the environment, and what its options override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.ops.cli.failures import UsageFault

if TYPE_CHECKING:
    from dalsegno.streams.engine.settings import EngineSettings


def read_settings(**overrides: object) -> EngineSettings:
    """Options that were given come first, then `DALSEGNO_…`. Raises UsageFault in one line."""
    # Imported by the commands that need it: help and completion stay quick.
    from pydantic import ValidationError

    from dalsegno.streams.engine.settings import EngineSettings

    given: dict[str, Any] = {k: v for k, v in overrides.items() if v not in (None, "", False)}
    try:
        return EngineSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]) or "settings"
        raise UsageFault(f"DALSEGNO_{name.upper()}: {first['msg']}") from error
