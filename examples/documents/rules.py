"""What each step makes of a document: pure functions, so a right report can be computed.

A claim is a sentence of a page that has a number in it; it is quoted as it stands there, with its
page. A conclusion is a sentence of one of the last pages that says it is one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

TITLE_CHARS_MAX: Final = 300
"""The archive takes no longer title."""

CLAIMS_PER_PAGE: Final = 2
SUMMARY_CLAIMS: Final = 5
_LAST_PAGES: Final = 3
_QUOTE_CHARS: Final = (20, 240)
_SENTENCE: Final = re.compile(r"[^\n.!?]+(?:[.!?](?=\s|$)|(?=\n|$))")
_STATED: Final = re.compile(r"\b(conclusion|conclude|final answer|the answer is)\b", re.IGNORECASE)
_IMPLIED: Final = re.compile(
    r"\b(therefore|thus|result|in summary|confirmed|answer)\b", re.IGNORECASE
)


class Claim(NamedTuple):
    """A sentence as it stands on a page."""

    page: int
    text: str


class Conclusion(NamedTuple):
    """`source`: `page N`, or the person who said it."""

    text: str
    source: str


def _sentences(page: str) -> list[str]:
    return [found.group().strip() for found in _SENTENCE.finditer(page)]


def claims(number: int, page: str) -> list[Claim]:
    """The first sentences of a page that have a number in them and a length to be quoted."""
    least, most = _QUOTE_CHARS
    found = [
        sentence
        for sentence in _sentences(page)
        if least <= len(sentence) <= most and any(letter.isdigit() for letter in sentence)
    ]
    return [Claim(number, sentence) for sentence in found[:CLAIMS_PER_PAGE]]


def concludes(number: int, pages: int, page: str, *, closely: bool) -> Conclusion | None:
    """The conclusion on this page, if it has one. `closely`: also where it is only implied."""
    if number <= max(1, pages - _LAST_PAGES):
        return None
    for pattern in (_STATED, _IMPLIED) if closely else (_STATED,):
        for sentence in _sentences(page):
            if pattern.search(sentence):
                return Conclusion(sentence[: _QUOTE_CHARS[1]], f"page {number}")
    return None


def title(question: str) -> str:
    """What the report is called: the question, as it was put."""
    return " ".join(question.split())


def summary(found: Iterable[Claim]) -> list[Claim]:
    """The claims that have the most numbers in them, in the order of the pages."""
    every = list(found)
    best = sorted(every, key=lambda claim: -sum(c.isdigit() for c in claim.text))
    return sorted(best[:SUMMARY_CLAIMS], key=every.index)


def render(
    document: Mapping[str, object],
    name: str,
    conclusion: Conclusion,
    quotes: Sequence[Claim],
) -> str:
    """The report: every line of it says where it comes from."""
    lines = [f"# {name}", "", f"{conclusion.text} [{conclusion.source}]", ""]
    lines += [f"- {claim.text} [page {claim.page}]" for claim in quotes]
    source = f"{document['name']}, {document['pages']} pages, sha256 {document['digest']}"
    return "\n".join([*lines, "", f"Source: {source}", ""])


class Traced(NamedTuple):
    """What a report cites: the conclusion, the quotes, the digest of its source."""

    title: str
    conclusion: Conclusion
    quotes: tuple[Claim, ...]
    digest: str


_LINE: Final = re.compile(r"^(?:- )?(.*) \[([^\]]+)\]$")


def trace(report: str) -> Traced:
    """Reads a report back. Raises `ValueError` for text that is none."""
    lines = report.split("\n")
    cited = [found.groups() for found in map(_LINE.match, lines[1:]) if found]
    digest = re.search(r"sha256 ([0-9a-f]{64})$", report.rstrip())
    if not cited or digest is None:
        raise ValueError(f"no report: {report[:80]!r}")
    quotes = tuple(Claim(int(place.removeprefix("page ")), text) for text, place in cited[1:])
    return Traced(lines[0].removeprefix("# "), Conclusion(*cited[0]), quotes, digest[1])


def fingerprint(inputs: Mapping[str, object]) -> str:
    """The same for two maps of fields with the same values."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
