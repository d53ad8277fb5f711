"""Large values as bodies see them: read when they are asked for, under their schemas; saves."""

from __future__ import annotations

import asyncio
from typing import NotRequired, TypedDict

import pytest
from tests.unit.client.blob_engine import BlobEngine, blobs_of
from tests.unit.client.fakes import FakeGate, handoff
from tests.unit.client.test_blobs import DOCUMENT, LONG, engine, lab, large
from tests.unit.storage.blob_lab import BlobLab, flipped

from dalsegno.client import (
    BlobCorrupt,
    BlockingContext,
    ContextSchema,
    Flow,
    Invalid,
    Secret,
)
from dalsegno.schemas import values
from dalsegno.schemas.events import StepProgressed
from dalsegno.schemas.values import Value
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.effects import Effects
from dalsegno.streams.client.large import Large

__all__ = ["engine", "lab"]


class Report(TypedDict):
    document: dict[str, str]
    pages: int
    letter: NotRequired[Secret[str]]


def typed() -> Flow:
    schema = ContextSchema("report", Report, version=2)

    @schema.upcast("document", from_version=1)
    def as_map(value: object) -> object:
        return {"text": value}

    flow = Flow("f", context_schema=schema)

    @flow.step(name="s", reads=["document", "pages"], writes=["letter"])
    def body(ctx: BlockingContext) -> None:
        return None

    return flow


def context_of(engine: BlobEngine, flow: Flow, inputs: Value) -> BlockingContext:
    step = flow.get("s")
    assert step is not None
    given = handoff(inputs=values.pack(inputs), context_schema="report", context_schema_version=1)
    attempt = Attempt(given, step, 1, "", blobs_of(engine.url, cache_bytes=0))
    return BlockingContext(attempt, Effects(attempt, FakeGate()), asyncio.get_running_loop())


async def test_a_body_reads_a_blob_when_it_asks_for_the_field_as_its_schema_has_it(
    engine: BlobEngine,
) -> None:
    kept = large(engine).kept({"document": DOCUMENT})
    ctx = context_of(engine, typed(), {**kept, "pages": 3})
    assert (len(ctx), "document" in ctx, ctx["pages"]) == (2, True, 3)
    assert "GET" not in engine.asked
    assert ctx["document"] == {"text": DOCUMENT}
    assert ctx["document"] == {"text": DOCUMENT}
    assert engine.asked.count("GET") == 1


async def test_a_body_may_go_through_all_of_its_inputs(engine: BlobEngine) -> None:
    kept = large(engine).kept({"document": DOCUMENT})
    for inputs in ({**kept, "pages": 3}, {"pages": 3, **kept}, kept):
        read = list(context_of(engine, typed(), inputs).items())
        assert sorted(read) == sorted({**inputs, "document": {"text": DOCUMENT}}.items())


async def test_a_blob_that_is_not_what_the_schema_says_fails_the_step(engine: BlobEngine) -> None:
    kept = large(engine).kept({"document": ["a", DOCUMENT]})
    with pytest.raises(Invalid, match="document"):
        context_of(engine, typed(), kept)["document"]


async def test_what_cannot_be_read_now_can_be_asked_for_again(
    lab: BlobLab, engine: BlobEngine
) -> None:
    kept = large(engine).kept({"document": DOCUMENT})
    [key] = lab.keys()
    lab.damage(key, flipped)
    ctx = context_of(engine, typed(), kept)
    with pytest.raises(BlobCorrupt):
        ctx["document"]
    lab.damage(key, flipped)
    assert ctx["document"] == {"text": DOCUMENT}


def test_what_a_schema_marks_secret_stays_inline(engine: BlobEngine) -> None:
    step = typed().get("s")
    assert step is not None
    made = Large(blobs_of(engine.url), 1, LONG, step.secrets)
    assert not made.needs_store({"letter": DOCUMENT})


async def test_a_large_save_is_kept_as_a_blob_and_comes_back(engine: BlobEngine) -> None:
    flow = Flow("f")

    @flow.step(name="s", writes=["x"])
    async def body(ctx: object) -> None:
        return None

    step = flow.get("s")
    assert step is not None
    gate, blobs = FakeGate(), blobs_of(engine.url)
    first = Attempt(handoff(inputs=values.pack({})), step, 1, "", blobs)
    await Effects(first, gate).save({"so far": DOCUMENT})
    [event] = gate.reported
    assert isinstance(event, StepProgressed)
    assert event.save is not None
    assert len(event.save) < 64
    again = Attempt(handoff(inputs=values.pack({}), save=event.save), step, 1, "", blobs)
    ctx = BlockingContext(again, Effects(again, gate), asyncio.get_running_loop())
    assert ctx.saved == {"so far": DOCUMENT}
