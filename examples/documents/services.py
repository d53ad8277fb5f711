"""The store of pages, the model and the archive as real HTTP servers.

    python -m examples.documents.services NAME PORT FOLDER SEED COUNT

* `store`: `GET /page?name=&number=&run=&epoch=`: one page; who has read which page stands in its
  book, `store.jsonl`.
* `model`: `POST /summarise` with {"run", "run_version", "inputs"}; a call costs money, so a
  key that it has seen is answered from its book.
* `archive`: `POST /file` with the same and {"name", "title", "text"}: files a report once as
  FOLDER/reports/NAME.md. 422 for a title that is too long.

Acts carry the headers `Idempotency-Key` and `Epoch`. Answers 409 to a superseded attempt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from examples.documents.rules import TITLE_CHARS_MAX, Claim, fingerprint, summary
from examples.documents.sources import Document, documents
from examples.risk_control.ledger import Entry, Ledger, LowerEpoch
from examples.stage import Stage

SERVICES: Final = ("store", "model", "archive")
PAGE_S: Final = 0.1
SUMMARY_S: Final = 0.2
_MODULE: Final = "examples.documents.services"

Answer = dict[str, object]


class TitleTooLong(Exception):  # noqa: N818 - it is an answer, not a fault of the archive
    """The archive does not take this title."""


class Read(NamedTuple):
    """One page read: by which attempt of which run's extraction."""

    run: str
    epoch: int
    page: int


def start(stage: Stage, seed: int, count: int) -> list[str]:
    """Start all three on a stage, and tell its workers where they are; returns their URLs."""
    arguments = (str(stage.folder), str(seed), str(count))
    urls = [stage.service(name, _MODULE, *arguments) for name in SERVICES]
    for name, url in zip(SERVICES, urls, strict=True):
        stage.env[f"DOCUMENTS_{name.upper()}_URL"] = url
    stage.fleet.extend(stage.env)
    return urls


def reads(folder: Path) -> list[Read]:
    """Pages read so far, in order."""
    path = folder / "store.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [Read(*json.loads(line)) for line in lines]


class Store:
    """Gives out pages, one at a time."""

    def __init__(self, folder: Path, held: list[Document]) -> None:
        self._held = {document.name: document for document in held}
        self._book = (folder / "store.jsonl").open("a", buffering=1)

    async def page(self, request: web.Request) -> web.Response:
        """One page as text."""
        query = request.query
        number = int(query["number"])
        await asyncio.sleep(PAGE_S)
        self._book.write(json.dumps([query["run"], int(query["epoch"]), number]) + "\n")
        return web.Response(text=self._held[query["name"]].pages[number - 1])


class Desk:
    """Does what it is asked once for each key, and keeps which state of the run it was shown."""

    def __init__(self, book: Ledger, act: Callable[[Answer], Answer], work_s: float) -> None:
        self._book, self._act, self._work_s = book, act, work_s
        self._busy: dict[str, asyncio.Lock] = {}

    async def post(self, request: web.Request) -> web.Response:
        """The act, or what it came to the first time."""
        key, epoch = request.headers["Idempotency-Key"], int(request.headers["Epoch"])
        body: Answer = await request.json()
        async with self._busy.setdefault(key, asyncio.Lock()):
            try:
                entry = self._book.known(key, epoch)
                if entry is None:
                    await asyncio.sleep(self._work_s)
                    self._book.known(key, epoch)
                    entry = Entry(key, epoch, str(body["run"]), self._answer(body))
                    self._book.record(entry)
            except LowerEpoch as refusal:
                return web.json_response({"error": str(refusal)}, status=409)
            except TitleTooLong as refusal:
                return web.json_response({"error": str(refusal)}, status=422)
        return web.json_response(entry.answer["result"])

    def _answer(self, body: Answer) -> Answer:
        inputs = body["inputs"]
        assert isinstance(inputs, dict)
        return {
            "run_version": body["run_version"],
            "read": fingerprint(inputs),
            "result": self._act(body),
        }


def summarise(body: Answer) -> Answer:
    """The model: which claims matter."""
    inputs = body["inputs"]
    assert isinstance(inputs, dict)
    return {"summary": summary(Claim(*each) for each in inputs["claims"])}


def filer(folder: Path) -> Callable[[Answer], Answer]:
    """The archive: files reports in `folder`."""
    folder.mkdir(exist_ok=True)

    def file(body: Answer) -> Answer:
        name, title, text = (str(body[part]) for part in ("name", "title", "text"))
        if len(title) > TITLE_CHARS_MAX:
            raise TitleTooLong(f"the title has {len(title)} characters, {TITLE_CHARS_MAX} go")
        (folder / f"{name}.md").write_text(text)
        return {"filed": f"{name}.md", "bytes": len(text.encode())}

    return file


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def application(name: str, folder: Path, held: list[Document]) -> web.Application:
    """The service `name`, with its book in `folder`."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_get("/health", _health)
    if name == "store":
        app.router.add_get("/page", Store(folder, held).page)
        return app
    book = Ledger(folder / f"{name}.jsonl")
    if name == "model":
        app.router.add_post("/summarise", Desk(book, summarise, SUMMARY_S).post)
    else:
        app.router.add_post("/file", Desk(book, filer(folder / "reports"), 0.02).post)
    return app


def main(name: str, port: str, folder: str, seed: str, count: str) -> None:
    """Serve until killed."""
    app = application(name, Path(folder), documents(int(count), int(seed)))
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
