"""The settings of a command: the environment, and what its options override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.ops.cli.failures import UsageFault

if TYPE_CHECKING:
    from pydantic import ValidationError

    from dalsegno.streams.engine.settings import EngineSettings


def read_settings(**overrides: object) -> EngineSettings:
    """Options that were given come first, then `DALSEGNO_…`. Raises UsageFault in one line."""
    # Imported by the commands that need it: help and completion stay quick.
    from pydantic import ValidationError

    from dalsegno.streams.engine.settings import EngineSettings

    given: dict[str, Any] = {
        k: v for k, v in overrides.items() if v is not None and v is not False and v != ""
    }
    try:
        return EngineSettings(**given)
    except ValidationError as error:
        raise UsageFault(said(error)) from error


def said(error: ValidationError) -> str:
    """One line: the variable, and what is wrong. What concerns several names them itself."""
    from dalsegno.ops.variables import prefix_of

    first = error.errors()[0]
    text = first["msg"].removeprefix("Value error, ")
    name = "_".join(str(part) for part in first["loc"])
    return f"{prefix_of(error.title)}{name.upper()}: {text}" if name else text
