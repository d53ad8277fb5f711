"""The closing table: what the books of the services, the reports and the log say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from dalsegno.schemas.outputs import Outcome, RunState, Transition
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.run_table import FINAL_RUNS
from examples.documents import rules
from examples.documents.flow import QUEUES, documents
from examples.documents.readings import Change, Reading, completions, history, readings
from examples.documents.services import Read, reads
from examples.documents.sources import Document
from examples.risk_control.ledger import Entry
from examples.risk_control.ledger import read as read_book
from examples.risk_control.log import read as read_topic


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found. `ended`: state by run. `taken`, `refused`: decisions by kind or reason.
    `completed`: how often each (run, step) was completed. `reports`: text by document.
    """

    ended: dict[str, RunState]
    taken: Counter[str]
    refused: Counter[str]
    changes: Mapping[str, Sequence[Change]]
    readings: Sequence[Reading]
    completed: Counter[tuple[str, str]]
    pages: Sequence[Read]
    model: Sequence[Entry]
    archive: Sequence[Entry]
    reports: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """`conclusions`: how many came at once, by looking again, from a person. `handoffs`: mean bytes
    of the inputs by step. `faults`: sentences that say what is wrong; empty when all is right.
    """

    documents: int
    filed: int
    conclusions: dict[str, int]
    resumed: int
    pages_again: int
    rerun: int
    supplied: int
    edited: int
    refused: int
    consumers: int
    quotes: int
    document_bytes: int
    handoffs: dict[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return not self.faults


def gather(bootstrap: str, topics: Topics, folder: Path, given: Sequence[Document]) -> Facts:
    """Read the topics, the books and the reports in `folder`."""
    events = list(read_topic(bootstrap, topics.events))
    transitions = [row.record for row in read_topic(bootstrap, topics.transitions)]
    handoffs = [row.record for name in QUEUES for row in read_topic(bootstrap, topics.queue(name))]
    changes, ends = history(events, transitions), completions(events, transitions)
    declared = {step.name: step.reads for step in documents}
    filed = folder / "reports"
    evidence = Evidence(
        *_log(transitions),
        changes,
        readings(handoffs, changes, ends, declared),
        Counter((run, step) for run, step, _ in ends),
        reads(folder),
        list(read_book(folder / "model.jsonl")),
        list(read_book(folder / "archive.jsonl")),
        {path.stem: path.read_text() for path in filed.glob("*.md")},
    )
    return judge(evidence, given)


def _log(transitions: Sequence[object]) -> tuple[dict[str, RunState], Counter[str], Counter[str]]:
    ended: dict[str, RunState] = {}
    taken, refused = Counter[str](), Counter[str]()
    for each in transitions:
        if not isinstance(each, Transition):
            continue
        after = each.run_state_after
        if after is not None and after in FINAL_RUNS:
            ended.setdefault(each.run_id, after)
        if each.cause == "DecisionMade" and each.outcome is Outcome.APPLIED:
            taken[each.reason.partition(":")[0]] += 1
        elif each.cause == "DecisionMade":
            refused[each.reason] += 1
    return ended, taken, refused


def judge(found: Evidence, given: Sequence[Document]) -> Facts:
    """Everything that can be wrong, looked at."""
    faults = [*_unread(found), *_twice(found)]
    conclusions, quotes = Counter[str](), 0
    for document in given:
        fault, source, cited = _report(found, document)
        faults += [fault] if fault else []
        conclusions[source] += 1
        quotes += cited
    by_step: dict[str, list[int]] = defaultdict(list)
    for each in found.readings:
        by_step[each.step].append(each.size_bytes)
    resumed, again = _resumed(found.pages)
    return Facts(
        documents=len(given),
        filed=len(found.reports),
        conclusions=dict(conclusions),
        resumed=resumed,
        pages_again=again,
        rerun=sum(n > 1 for (_, step), n in found.completed.items() if step == "extract"),
        supplied=found.taken["supply"],
        edited=found.taken["edit"],
        refused=found.refused.total(),
        consumers=len(found.readings),
        quotes=quotes,
        document_bytes=round(fmean(document.size_bytes for document in given)),
        handoffs={step: round(fmean(sizes)) for step, sizes in by_step.items()},
        faults=tuple(faults),
    )


def _unread(found: Evidence) -> list[str]:
    """Consumers that were given anything but the newest context, or more than they declare."""
    faults = []
    shown = {
        (entry.application, step): entry
        for step, book in (("summarise", found.model), ("format", found.archive))
        for entry in book
    }
    for each in found.readings:
        what = f"{each.step} of {each.run}"
        if each.stale:
            faults.append(f"{what} read an older {', '.join(sorted(each.stale))}")
        if each.undeclared:
            faults.append(f"{what} was given {', '.join(sorted(each.undeclared))}, undeclared")
        if each.step != "extract" and not _as_shown(each, shown.get((each.run, each.step))):
            faults.append(f"{what}: its service was shown something else")
    return faults


def _as_shown(reading: Reading, entry: Entry | None) -> bool:
    """Whether the service was shown what the step was given: by this attempt, or by one before it
    whose answer did not arrive.
    """
    if entry is None or entry.answer["read"] != rules.fingerprint(reading.inputs):
        return False
    version = entry.answer["run_version"]
    return isinstance(version, int) and version <= reading.run_version


def _twice(found: Evidence) -> list[str]:
    """What was done more than once at a service, or in the log."""
    faults = [
        f"{name}: {run} {n} times"
        for name, book in (("model", found.model), ("archive", found.archive))
        for run, n in Counter(entry.application for entry in book).items()
        if n > 1
    ]
    # A step that supplies a missing fact is run again, once; no other completed step ever is.
    return faults + [
        f"{step} of {run} was completed {n} times"
        for (run, step), n in found.completed.items()
        if n > (2 if step == "extract" else 1)
    ]


def _report(found: Evidence, document: Document) -> tuple[str, str, int]:
    """(what is wrong, where the conclusion comes from, how many quotes) of one document."""
    state, text = found.ended.get(document.name), found.reports.get(document.name)
    if state is not RunState.SUCCEEDED or text is None:
        return f"{document.name} ended {state}, report: {text is not None}", "none", 0
    told = rules.trace(text)
    source = told.conclusion.source
    for claim in told.quotes:
        if claim.text not in document.pages[claim.page - 1]:
            return f"{document.name}: page {claim.page} does not say {claim.text!r}", source, 0
    if told.digest != document.digest:
        return f"{document.name}: the report names another source", source, 0
    if source.startswith("page "):
        if told.conclusion.text not in document.pages[int(source[5:]) - 1]:
            return f"{document.name}: {source} does not conclude so", source, 0
        closely = found.completed[document.name, "extract"] > 1
        return "", "found by looking again" if closely else "found at once", len(told.quotes)
    if not any(each.by == source for each in found.changes[document.name]):
        return f"{document.name}: nobody of the name {source} has said so", source, 0
    return "", "from a person", len(told.quotes)


def _resumed(pages: Sequence[Read]) -> tuple[int, int]:
    """Extractions that went on from a save, and pages that were read by two attempts of those."""
    attempts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for each in pages:
        attempts[each.run, each.epoch].append(each.page)
    resumed = again = 0
    for (run, epoch), numbers in attempts.items():
        if numbers[0] == 1:
            continue
        resumed += 1
        before = attempts.get((run, epoch - 1), [])
        again += len(set(numbers) & set(before))
    return resumed, again
