"""What each step changed in its run's context, as a debug line with the run id."""

from __future__ import annotations

import logging
from collections.abc import Callable

import structlog

from dalsegno.schemas import values
from dalsegno.schemas.outputs import Transition

log = structlog.get_logger(__name__)


def diff_log() -> Callable[[Transition], None] | None:
    """Writes the line of a transition; None while debug is off, so that then it costs nothing."""
    return _tell if logging.getLogger(__name__).isEnabledFor(logging.DEBUG) else None


def _tell(transition: Transition) -> None:
    """The fold has masked the values of secret fields; what came of a repeat is told again."""
    if transition.diff:
        log.debug(
            "context changed",
            run_id=transition.run_id,
            step=transition.step,
            epoch=transition.epoch,
            cause=transition.cause,
            run_version=transition.run_version_after,
            diff=values.unpack(transition.diff),
        )
