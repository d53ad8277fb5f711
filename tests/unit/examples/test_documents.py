"""The documents example: what steps make of a record, and the table that judges the reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from examples.documents import rules
from examples.documents.facts import Evidence, Facts, judge
from examples.documents.readings import Change, Reading, readings
from examples.documents.rules import Claim, Conclusion
from examples.documents.services import Read
from examples.documents.sources import RECORDS, Document, documents, recorded
from examples.risk_control.ledger import Entry

from dalsegno.client import RunState
from dalsegno.schemas import values
from dalsegno.schemas.outputs import Handoff

ABSENT = Path("no-such-file")


def report(document: Document, conclusion: Conclusion) -> str:
    found = [c for n, page in enumerate(document.pages, 1) for c in rules.claims(n, page)]
    name = rules.title(document.question)
    return rules.render(document.facts(), name, conclusion, rules.summary(found))


def test_the_same_seed_gives_the_same_documents_of_every_kind() -> None:
    given = documents(40, 7, ABSENT)
    assert given == documents(40, 7, ABSENT)
    kinds = set()
    for each in given:
        pages = list(enumerate(each.pages, 1))
        stated = any(rules.concludes(n, len(pages), p, closely=False) for n, p in pages)
        implied = any(rules.concludes(n, len(pages), p, closely=True) for n, p in pages)
        kinds.add((stated, implied))
    assert kinds == {(True, True), (False, True), (False, False)}
    long = [len(rules.title(each.question)) > rules.TITLE_CHARS_MAX for each in given]
    assert 0 < sum(long) < len(given)


@pytest.mark.shared_data
def test_recorded_documents_can_be_quoted_and_traced() -> None:
    if not RECORDS.exists():
        pytest.skip("the recorded documents are not beside the project")
    for each in recorded(RECORDS):
        told = rules.trace(report(each, Conclusion("Said.", "ana")))
        assert told.conclusion == Conclusion("Said.", "ana")
        assert told.digest == each.digest
        for claim in told.quotes:
            assert claim.text in each.pages[claim.page - 1]


def test_a_report_can_be_read_back() -> None:
    (document,) = documents(1, 3, ABSENT)
    text = report(document, Conclusion("So it is [mostly].", "page 4"))
    told = rules.trace(text)
    assert told.conclusion == Conclusion("So it is [mostly].", "page 4")
    assert told.title == rules.title(document.question)
    assert len(told.quotes) == rules.SUMMARY_CLAIMS
    with pytest.raises(ValueError, match="no report"):
        rules.trace("nothing")


def handoff(**inputs: values.Value) -> Handoff:
    return Handoff(
        "r", "documents", 1, "summarise", 1, "", values.pack(inputs), 5, "", 0, 0, 1, 1
    )  # fmt: skip


CHANGES = {
    "r": [
        Change(10, 1, "start", {"document": "d"}),
        Change(20, 3, "extract", {"claims": [1], "title": "t"}),
        Change(30, 5, "ana", {"conclusion": "c"}),
    ]
}
DECLARED = {"summarise": frozenset({"claims", "conclusion"})}


def read(given: Handoff, completed_at: int = 40) -> list[Reading]:
    return readings([given], CHANGES, {("r", "summarise", 1): completed_at}, DECLARED)


def test_a_consumer_of_the_newest_context_is_told_from_one_of_an_older() -> None:
    (right,) = read(handoff(claims=[1], conclusion="c"))
    assert (right.stale, right.undeclared) == (frozenset(), frozenset())
    (old,) = read(handoff(claims=[0], conclusion="c"))
    assert old.stale == {"claims"}
    (lost,) = read(handoff(claims=[1]))
    assert lost.stale == {"conclusion"}
    (early,) = read(handoff(claims=[1], conclusion="c"), completed_at=25)
    assert early.stale == {"conclusion"}, "it was not there yet"
    (wide,) = read(handoff(claims=[1], conclusion="c", title="t"))
    assert wide.undeclared == {"title"}
    assert readings([handoff()], CHANGES, {}, DECLARED) == [], "only what completed was consumed"


GIVEN = documents(1, 5, ABSENT)
NAME = GIVEN[0].name
CLAIMS = {"claims": [[1, "x"]], "conclusion": {"text": "We stop.", "source": "ana"}}


def book(inputs: dict[str, object], version: int = 4) -> Entry:
    shown = {"run_version": version, "read": rules.fingerprint(inputs), "result": {}}
    return Entry("k", 1, NAME, shown)


def reading(step: str) -> Reading:
    return Reading(NAME, step, 4, CLAIMS, 300, frozenset(), frozenset())


RIGHT = Evidence(
    ended={NAME: RunState.SUCCEEDED},
    taken=Counter(supply=1),
    refused=Counter(bad_ops=1),
    changes={NAME: [Change(9, 4, "ana", {"conclusion": CLAIMS["conclusion"]})]},
    readings=[reading("extract"), reading("summarise"), reading("format")],
    completed=Counter({(NAME, "extract"): 2, (NAME, "summarise"): 1, (NAME, "format"): 1}),
    pages=[Read(NAME, 1, 1), Read(NAME, 1, 2), Read(NAME, 2, 2), Read(NAME, 2, 3)],
    model=[book(CLAIMS)],
    archive=[book(CLAIMS)],
    reports={NAME: report(GIVEN[0], Conclusion("We stop.", "ana"))},
)


def judged(**changed: object) -> Facts:
    return judge(replace(RIGHT, **changed), GIVEN)


def test_a_right_run_is_right() -> None:
    facts = judged()
    assert facts.faults == ()
    assert facts.conclusions == {"from a person": 1}
    assert (facts.resumed, facts.pages_again, facts.rerun) == (1, 1, 1)
    assert (facts.supplied, facts.refused, facts.quotes) == (1, 1, rules.SUMMARY_CLAIMS)


def test_what_is_wrong_turns_the_table_red() -> None:
    text = RIGHT.reports[NAME]
    quote = rules.trace(text).quotes[0]
    stale = reading("format")._replace(stale=frozenset({"title"}))
    wide = reading("format")._replace(undeclared=frozenset({"claims"}))
    wrong = {
        "no report": judged(reports={}),
        "a run that failed": judged(ended={NAME: RunState.FAILED}),
        "a quote that is nowhere": judged(reports={NAME: text.replace(quote.text, "37 horses")}),
        "another source": judged(reports={NAME: text.replace(GIVEN[0].digest, "0" * 64)}),
        "a conclusion that the page has not": judged(reports={NAME: text.replace("ana", "page 1")}),
        "a conclusion of nobody": judged(changes={NAME: []}),
        "an older context": judged(readings=[stale, *RIGHT.readings[:2]]),
        "more than is declared": judged(readings=[wide, *RIGHT.readings[:2]]),
        "its service was shown another": judged(model=[book({"claims": []})]),
        "its service was shown a later one": judged(model=[book(CLAIMS, version=5)]),
        "its service was not called": judged(archive=[]),
        "summarised twice": judged(model=[book(CLAIMS), book(CLAIMS)]),
        "filed twice": judged(archive=[book(CLAIMS), book(CLAIMS)]),
        "completed again": judged(completed=RIGHT.completed + Counter({(NAME, "format"): 1})),
    }
    assert [what for what, facts in wrong.items() if facts.right] == []
    assert Claim(quote.page, quote.text) == quote
