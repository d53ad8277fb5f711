"""Packages for tests of webhooks."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import Log, chain
from tests.unit.people.asking import asked, failed

from dalsegno.schemas.outputs import Escalation


def package(number: int = 0, **changed: object) -> Escalation:
    """One as the fold makes it."""
    log = Log()
    log.start(chain(1))
    log.began("s0")
    made = asked(failed(log, "s0", message=f"failure {number}"))
    return msgspec.structs.replace(made, **changed)
