"""What waits to be brought back, from what the engines answer, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dalsegno.ops.cli.render import print_table

Fields = Mapping[str, object]


def preview_tables(found: Sequence[Fields]) -> None:
    """The scopes that are frozen, the lines, and the runs in the order in which they would go."""
    frozen = [(row["partition"], *scope) for row in found for scope in _scopes(row)]
    columns = ("partition", "flow", "fault point", "reason", "by", "release")
    print_table(columns, frozen, "nothing is frozen")
    print()
    lines = [
        (row["partition"], line["line"], line["steps"])
        for row in found
        for line in _maps(row, "lines")
    ]
    print_table(("partition", "line", "steps that wait"), lines, "no step is held")
    print()
    total = sum(_number(row, "waiting_runs") for row in found)
    shown = sum(len(_maps(row, "runs")) for row in found)
    predicted = max((_number(row, "predicted_ms") for row in found), default=0)
    bound = max((_number(row, "bound_ms") for row in found), default=0)
    print(f"{total} runs wait, {shown} shown; these take {predicted} ms, all at least {bound} ms")
    depends: dict[str, int] = {}
    for row in found:
        for name, count in _pairs(row):
            depends[name] = depends.get(name, 0) + count
    if depends:
        print("against " + ", ".join(f"{name} ({n} runs)" for name, n in sorted(depends.items())))
    print()
    runs = [run for row in found for run in _maps(row, "runs")]
    runs.sort(key=lambda run: (_number(run, "begin_ms"), _number(run, "end_ms")))
    names = ("run_id", "flow", "steps", "waited_ms", "work_ms", "begin_ms", "end_ms")
    print_table(names, ([_cell(run[name]) for name in names] for run in runs), "no run waits")


def frozen_in(row: Fields, flow: str, fault_point: str) -> bool:
    """Whether exactly this scope is frozen on a partition."""
    return any(scope[:2] == (flow, fault_point) for scope in _scopes(row))


def _scopes(row: Fields) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for each in _maps(row, "freezes"):
        rate = each["rate_per_s"]
        under_way = f"under way, at most {rate}/s" if rate else "under way"
        said = under_way if each["releasing"] else "no"
        found.append((each["flow"], each["fault_point"], each["reason"], each["by"], said))
    return found


def _maps(row: Fields, name: str) -> list[Fields]:
    value = row.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _pairs(row: Fields) -> list[tuple[str, int]]:
    value = row.get("depends_on")
    pairs = value if isinstance(value, list) else []
    return [(str(name), count) for name, count in pairs]


def _number(row: Fields, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


def _cell(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
