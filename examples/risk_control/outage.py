"""The outage as a line of text: what a dependency may receive, as the engines' metrics say it."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rich.text import Text

WIDTH = 70
"""Samples that the line holds."""

EVERY_S = 0.5
_BARS = "▁▂▃▄▅▆▇█"
_LINE = re.compile(r"^dalsegno_fault_point_(phase|window|waiting)\{(.*)\} ([0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Sample(NamedTuple):
    """A fault point at one moment. `phase` is empty while it is healthy."""

    phase: str = ""
    window: int = 0
    waiting: int = 0


def sample(page: str, name: str) -> Sample:
    """Read a page of metrics (Prometheus text) for one fault point."""
    phase, window, waiting = "", 0, 0
    for line in page.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        what, labels, value = found[1], dict(_LABEL.findall(found[2])), int(float(found[3]))
        if labels.get("fault_point") != name:
            continue
        if what == "phase":
            phase = labels["phase"] if value else phase
        elif what == "window":
            window = value
        else:
            waiting = value
    return Sample(phase, window, waiting)


def draw(samples: Iterable[Sample]) -> Text:
    """`·` healthy, a red block open, `?` one probe, a bar for the window."""
    line = Text()
    for each in samples:
        if each.phase == "open":
            line.append("█", style="red")
        elif each.phase == "half_open":
            line.append("?", style="yellow")
        elif each.phase:
            height = min(len(_BARS) - 1, max(0, each.window.bit_length() - 1))
            line.append(_BARS[height], style="green")
        else:
            line.append("·", style="dim")
    return line


class Outage(threading.Thread):
    """Asks the engines now and then; one that is down is left out."""

    def __init__(self, urls: list[str], name: str) -> None:
        super().__init__(name="outage", daemon=True)
        self._urls, self._point = urls, name
        self._samples: deque[Sample] = deque(maxlen=WIDTH)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            seen = [sample(page, self._point) for page in map(_page, self._urls) if page]
            damaged = [each for each in seen if each.phase]
            now = damaged[0] if damaged else Sample()
            self._samples.append(now._replace(waiting=sum(each.waiting for each in seen)))

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def render(self) -> Text:
        """One line: the newest samples at its right end."""
        samples = list(self._samples)
        waiting = samples[-1].waiting if samples else 0
        return Text(f"{self._point}: ") + draw(samples) + Text(f"  {waiting} steps wait")


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url + "metrics", timeout=1) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""
