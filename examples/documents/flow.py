"""The flow: extract → summarise → format, each on a queue of its own.

`extract` reads a document page by page and saves after each, so an attempt that dies costs a page.
It does not always find a conclusion, and `summarise` needs one: the missing fact is asked for, of
`extract`, which then looks more closely, and then of a person.
"""

from __future__ import annotations

from typing import Final, TypedDict

import msgspec

from dalsegno.client import Context, Flow, Invalid
from examples.documents import calls, rules
from examples.documents.rules import Claim, Conclusion

NAME: Final = "documents"
QUEUES: Final = ("extract", "summarise", "format")
POLICY: Final = "supplier_reruns_max = 1\n"
"""A completed step is run again for a missing fact only where the policy allows it."""

documents: Final = Flow(
    NAME,
    version=1,
    ttl="2h",
    stop_clocks_for_people=True,
    fields={
        "conclusion": ("map", "What the record concludes: its `text`, and you as its `source`."),
        "title": ("text", f"What the report is called, in {rules.TITLE_CHARS_MAX} characters."),
    },
)
documents.on_stop(calls.services.close)
Outputs = dict[str, object]


class Facts(TypedDict):
    """What a run is started with: the document stays in the store."""

    name: str
    question: str
    pages: int
    digest: str


class Said(TypedDict):
    """A conclusion and where it comes from."""

    text: str
    source: str


class Progress(msgspec.Struct):
    """What an extraction keeps for its next attempt. `closely`: how it looks."""

    closely: bool
    pages: int = 0
    claims: list[Claim] = []
    conclusion: Conclusion | None = None

    def saved(self) -> Outputs:
        """As a save holds it: lists and texts, no tuples."""
        return {
            "closely": self.closely,
            "pages": self.pages,
            "claims": [list(claim) for claim in self.claims],
            "conclusion": None if self.conclusion is None else list(self.conclusion),
        }


def _begun(saved: object, closely: bool) -> Progress:
    if saved is not None:
        try:
            found = msgspec.convert(saved, Progress)
        except msgspec.ValidationError as error:
            raise Invalid(f"the save of the attempt before cannot be read: {error}") from error
        if found.closely == closely:
            return found
    return Progress(closely)


@documents.step(
    queue="extract",
    reads=["document"],
    writes=["title", "claims"],
    may_write=["conclusion"],
    depends_on=["store"],
    timeout="1m",
)
async def extract(ctx: Context) -> Outputs:
    """Find what a document claims and concludes."""
    document = ctx.read("document", Facts)
    at = _begun(ctx.saved, closely="Supply conclusion" in ctx.goal)
    for number in range(at.pages + 1, document["pages"] + 1):
        page = await calls.page(document["name"], number, ctx.run_id, ctx.epoch)
        at.claims = [*at.claims, *rules.claims(number, page)]
        found = rules.concludes(number, document["pages"], page, closely=at.closely)
        at.conclusion = found or at.conclusion
        at.pages = number
        ctx.progress()
        await ctx.save(at.saved())
    outputs: Outputs = {
        "title": rules.title(document["question"]),
        "claims": at.saved()["claims"],
    }
    if at.conclusion is not None:
        outputs["conclusion"] = at.conclusion._asdict()
    return outputs


def _shown(ctx: Context) -> Outputs:
    """What a service is told of where its inputs come from: the run and its version."""
    return {"run": ctx.run_id, "run_version": ctx.run_version, "inputs": dict(ctx)}


@documents.step(
    queue="summarise",
    needs=[extract],
    reads=["claims", "conclusion"],
    writes=["summary"],
    depends_on=["model"],
    timeout="1m",
)
async def summarise(ctx: Context) -> Outputs:
    """Keep the claims that matter for the conclusion."""
    answer = await ctx.effect("summarise", calls.summarise, _shown(ctx))
    return {"summary": answer["summary"]}


@documents.step(
    name="format",
    queue="format",
    needs=[summarise],
    reads=["document", "title", "conclusion", "summary"],
    writes=["report"],
    depends_on=["archive"],
    timeout="1m",
)
async def format_report(ctx: Context) -> Outputs:
    """Write the report, every line with its source, and file it."""
    document, said = ctx.read("document", Facts), ctx.read("conclusion", Said)
    title, quotes = ctx.read("title", str), ctx.read("summary", list[Claim])
    text = rules.render(document, title, Conclusion(said["text"], said["source"]), quotes)
    body = {**_shown(ctx), "name": document["name"], "title": title, "text": text}
    return {"report": await ctx.effect("file", calls.file, body)}
