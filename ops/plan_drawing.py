"""A recovery plan as a graph: Mermaid for pages, DOT for Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

Fields = Mapping[str, object]

_COLOURS: Final = {
    "kept": "#d8ead8",
    "running": "#cfe2f3",
    "redo": "#fce5cd",
    "first": "#f3f3f3",
    "check first": "#fff2cc",
    "waits for a person": "#f4cccc",
    "waits for information": "#f4cccc",
    "behind what waits": "#eeeeee",
}


def mermaid(plan: Fields) -> str:
    """The plan as a Mermaid flowchart, left to right; each step with what is done with it."""
    names, lines = _numbered(plan), ["flowchart LR"]
    for name, number in names.items():
        label = _escaped("<br/>".join(_label(plan, name)))
        lines.append(f'    s{number}["{label}"]:::{_class(_doing(plan, name))}')
    lines += [f"    s{names[before]} --> s{names[after]}" for before, after in _edges(plan, names)]
    lines += [f"    classDef {_class(what)} fill:{colour}" for what, colour in _COLOURS.items()]
    return "\n".join(lines)


def dot(plan: Fields) -> str:
    """The plan as a DOT digraph, left to right."""
    names = _numbered(plan)
    lines = ["digraph recovery {", "    rankdir=LR;", "    node [shape=box, style=filled];"]
    for name, number in names.items():
        label = "\\n".join(_quoted(line) for line in _label(plan, name))
        colour = _COLOURS[_doing(plan, name)]
        lines.append(f'    s{number} [label="{label}", fillcolor="{colour}"];')
    lines += [f"    s{names[before]} -> s{names[after]};" for before, after in _edges(plan, names)]
    return "\n".join([*lines, "}"])


def steps_of(plan: Fields) -> list[Fields]:
    """The steps that are not done, in the order of the plan."""
    return [each for each in _items(plan.get("steps")) if isinstance(each, Mapping)]


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _numbered(plan: Fields) -> dict[str, int]:
    kept = [str(name) for name in _items(plan.get("kept"))]
    return {name: n for n, name in enumerate([*kept, *(str(s["step"]) for s in steps_of(plan))])}


def _doing(plan: Fields, name: str) -> str:
    return next((str(s["doing"]) for s in steps_of(plan) if s["step"] == name), "kept")


def _class(doing: str) -> str:
    return doing.replace(" ", "_")


def _label(plan: Fields, name: str) -> list[str]:
    step = next((each for each in steps_of(plan) if each["step"] == name), None)
    if step is None:
        return [name, "kept"]
    begin, end = step["begin_ms"], step["end_ms"]
    lines = [name, str(step["doing"])]
    if isinstance(begin, int) and begin >= 0:
        lines.append(f"{begin} to {end} ms")
    return lines


def _edges(plan: Fields, names: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    for step in steps_of(plan):
        for need in _items(step.get("needs")):
            if str(need) in names:
                yield str(need), str(step["step"])


def _escaped(text: str) -> str:
    """Names come from others: a quote must not end a label, nor a tag begin in it."""
    parts = text.split("<br/>")
    return "<br/>".join(
        part.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
        for part in parts
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
