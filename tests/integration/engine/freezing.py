"""A broker that stops answering just as an engine comes to a point of its start or its life."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dalsegno.streams.engine import app, opening, restore, start
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.opening import Opening
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.topics_admin import TopicAdmin

POINTS: Final[dict[str, tuple[Any, str]]] = {
    "ping": (TopicAdmin, "ping"),
    "facts": (TopicAdmin, "facts"),
    "transactions": (start, "transactions_allowed"),
    "owners": (OwnersView, "start"),
    "layout": (OwnersView, "check_layout"),
    "identity": (TopicAdmin, "identity"),
    "data-folder": (app, "open_tier"),
    "join": (app, "make_app"),
    "fence": (Opening, "run"),
    "claim": (FencedProducer, "commit"),
    "tails": (opening, "restore"),
    "changelog": (restore, "_read_changelog"),
    "rebalance": (Ownership, "revoked"),
}


def install(point: str, number: int, pid: int, mark: Path) -> None:
    """Sends the signal to the process, once, before what happens at the point; then the mark is
    there.
    """
    owner, name = POINTS[point]
    work: Callable[..., Any] = getattr(owner, name)

    def after(*args: Any, **options: Any) -> Any:
        had = point != "rebalance" or args[0].tasks  # the first one takes nothing from us
        if had and not mark.exists():
            os.kill(pid, number)
            mark.touch()
        return work(*args, **options)

    setattr(owner, name, after)
