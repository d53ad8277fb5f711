"""`dalsegno show --at`: one run as it was at one of its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dalsegno.ops.cli.failures import NotFound
from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dalsegno.streams.core.versions import VersionView
    from dalsegno.streams.engine.settings import EngineSettings


def show_at(run_id: str, run_version: int, *, json: bool) -> None:
    """Asks the engines, and folds the run's partition where they do not have it."""
    from dalsegno.ops.run_view import context_of

    settings = read_settings()
    found = _asked(settings, run_id, run_version) or _folded(run_id, run_version)
    if json:
        print_json({**found, "context": context_of(found)})
        return
    names = ("run_id", "flow", "flow_version", "run_version", "state", "plan_digest", "source")
    rows = [(name.replace("_", " "), found.get(name)) for name in names]
    at_ms = found.get("at_ms")
    rows.append(("at", when(at_ms) if isinstance(at_ms, int) and at_ms else "-"))
    for name in ("flags", "secrets_omitted"):
        told = found.get(name)
        if isinstance(told, list | tuple) and told:
            rows.append((name.replace("_", " "), ", ".join(map(str, told))))
    print_table(("what", "value"), rows, "")
    context = context_of(found)
    print()
    fields = context.items() if isinstance(context, dict) else ()
    print_table(("field", "value"), ((name, repr(value)[:200]) for name, value in fields), "")
    print()
    settled = found.get("settled")
    steps = settled if isinstance(settled, list) else []
    print_table(("step", "state"), ((each["step"], each["state"]) for each in steps), "no steps")


def _asked(settings: EngineSettings, run_id: str, run_version: int) -> Mapping[str, object] | None:
    """What the run's owner has; None where it has not, or nobody answers."""
    from dalsegno.ops.kafka.engines import EngineError, Engines

    try:
        return Engines.find(settings).version(run_id, run_version)
    except EngineError:
        return None


def _folded(run_id: str, run_version: int) -> Mapping[str, object]:
    from dalsegno.streams.engine.jsonable import jsonable

    found = _from_log(run_id, run_version)
    if found is None:
        raise NotFound(f"the log has no version {run_version} of a run {run_id}")
    fields = jsonable(found)
    assert isinstance(fields, dict)
    return fields


def _from_log(run_id: str, run_version: int) -> VersionView | None:
    """From the archive if there is one, and the log behind it."""
    from dalsegno.ops.cli.whole_fold import whole_fold
    from dalsegno.ops.versions import version_of
    from dalsegno.schemas.partitioner import partition_for

    with whole_fold(archive_only=False) as fold:
        number = partition_for(run_id, fold.count)
        return version_of(fold.partition(number, versions=True), run_id, run_version)
