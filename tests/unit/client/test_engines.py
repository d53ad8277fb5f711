"""Questions to engines: whom a client asks, what it makes of the answers, and how long it waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from tests.unit.core.log import Log, chain, step
from tests.unit.core.log import plan_of as plan

from dalsegno.client import (
    EngineUnavailable,
    RunRefused,
    RunState,
    UnknownRun,
    WaitTimeout,
)
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.streams.client.advice import Advice
from dalsegno.streams.client.ending import Ending
from dalsegno.streams.client.engine_http import NotHttpError, http_get
from dalsegno.streams.client.engines import Engines, Place
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.offsets import LastOffsets
from dalsegno.streams.client.outcomes import Outcomes
from dalsegno.streams.client.views import read_run
from dalsegno.streams.engine.jsonable import dumps

Reply = tuple[int, object]


class Engine:
    """An HTTP server that answers as `reply` says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reply: Callable[[str], Reply] = lambda _path: (503, {"error": "starting"})
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.asked.append(self.path)
                status, body = engine.reply(self.path)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Claims:
    """The owners topic, and the end of the events."""

    def __init__(self, *urls: str, end: int = 0) -> None:
        self.now = dict(enumerate(urls))
        self.end = end
        self.reads = 0
        self.down = False

    def urls(self) -> dict[int, str]:
        self.reads += 1
        if self.down:
            raise DeliveryFailed("owners", b"", "_TRANSPORT", "no broker")
        return dict(self.now)

    def events_end(self, partition: int) -> int:
        return self.end

    def close(self) -> None:
        """Nothing to free."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def of(claims: Claims) -> Engines:
    return Engines(claims)  # type: ignore[arg-type]


def shown(state: str = "running", kind: str = "run", position: int = 5, **more: object) -> Reply:
    run = {"run_id": "r", "kind": kind, "state": state, "run_version": 3, **more}
    return 200, {"partition": 0, "position": position, "run": run}


HERE = Place("r", 0, 4)
RESTORING = (
    503,
    {
        "error": "partition_not_ready",
        "partition": {"partition": 0, "state": "restoring", "restore": {"share": 0.43}},
    },
)


def test_the_owner_is_asked_first_and_up_to_the_offset(engine: Engine, other: Engine) -> None:
    other.reply = engine.reply = lambda _path: shown()
    engines = of(Claims(other.url, engine.url))
    assert engines.run(Place("a/b?c", 1, 7), 5).run_version == 3
    assert other.asked == []
    path = urlsplit(engine.asked[0])
    assert path.path == "/runs/a%2Fb%3Fc"
    assert parse_qs(path.query)["min_offset"] == ["7"]


def test_another_engine_answers_when_the_owner_is_gone(engine: Engine) -> None:
    engine.reply = lambda _path: shown()
    claims = Claims("http://127.0.0.1:9", engine.url)
    engines = of(claims)
    assert engines.run(HERE, 5).state is RunState.RUNNING
    assert claims.reads == 1
    claims.now = {0: engine.url}
    for _ in range(2):
        assert engines.run(HERE, 5).state is RunState.RUNNING
    assert claims.reads == 2, "who is gone is not asked first for ever"


def test_the_owners_are_read_again_when_nobody_answers(engine: Engine) -> None:
    engine.reply = lambda _path: shown()
    claims = Claims("http://127.0.0.1:9")
    engines = of(claims)
    with pytest.raises(EngineUnavailable, match="no engine answers"):
        engines.run(HERE, 0)
    claims.now = {0: engine.url}
    assert engines.run(HERE, 5).state is RunState.RUNNING


def test_addresses_that_are_known_serve_while_the_broker_is_away(engine: Engine) -> None:
    engine.reply = lambda _path: (503, {"error": "no_owner"})
    claims = Claims(engine.url)
    engines = of(claims)
    with pytest.raises(EngineUnavailable, match="no_owner"):
        engines.run(HERE, 0)
    claims.down = True
    engine.reply = lambda _path: shown()
    assert engines.run(HERE, 5).state is RunState.RUNNING


def test_without_any_address_the_broker_is_named() -> None:
    claims = Claims()
    claims.down = True
    with pytest.raises(EngineUnavailable, match="no broker"):
        of(claims).run(HERE, 0)


def test_a_restoring_owner_is_asked_again_until_it_can_answer(engine: Engine) -> None:
    replies = iter([RESTORING, RESTORING, shown()])
    engine.reply = lambda _path: next(replies)
    engines = of(Claims(engine.url))
    assert engines.run(HERE, 10).run_version == 3


def test_a_restore_that_takes_too_long_is_told_with_its_progress(engine: Engine) -> None:
    engine.reply = lambda _path: RESTORING
    with pytest.raises(EngineUnavailable, match="restoring, 43% read back") as told:
        of(Claims(engine.url)).run(HERE, 0.2)
    assert told.value.progress == 0.43


def offsets_of(engine: Engine) -> list[str]:
    return [parse_qs(urlsplit(path).query)["min_offset"][0] for path in engine.asked]


def test_no_such_run_is_said_once_all_of_the_log_was_read(engine: Engine) -> None:
    engine.reply = lambda _path: (404, {"error": "unknown_run"})
    with pytest.raises(UnknownRun, match="no run 'r'"):
        of(Claims(engine.url, end=10)).run(HERE, 60)
    assert offsets_of(engine) == ["4", "9"]


def test_a_run_that_another_client_has_just_started_is_found(engine: Engine) -> None:
    replies = iter([(404, {"error": "unknown_run"}), shown()])
    engine.reply = lambda _path: next(replies)
    assert of(Claims(engine.url, end=10)).run(HERE, 60).run_version == 3


def test_a_log_that_ends_with_a_mark_does_not_hide_that_there_is_no_such_run(
    engine: Engine,
) -> None:
    replies = iter(
        [
            (404, {"error": "unknown_run"}),
            (503, {"error": "not_yet_read", "lag": 0}),
            (404, {"error": "unknown_run"}),
        ]
    )
    engine.reply = lambda _path: next(replies)
    with pytest.raises(UnknownRun):
        of(Claims(engine.url, end=10)).run(HERE, 60)
    assert offsets_of(engine) == ["4", "9", "4"]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"run": 5}', b'{"run": {"state": "dancing"}}'])
def test_what_is_no_answer_of_an_engine_is_not_taken_for_one(engine: Engine, body: bytes) -> None:
    engine.reply = lambda _path: (200, body)
    with pytest.raises(EngineUnavailable):
        of(Claims(engine.url)).run(HERE, 0)


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://h/", "nonsense", "http://h:port/"])
def test_an_address_that_is_not_http_is_not_followed(url: str) -> None:
    with pytest.raises(NotHttpError):
        http_get(url, 1)


def test_a_redirect_is_not_followed(engine: Engine) -> None:
    engine.reply = lambda _path: (302, {"error": "moved"})
    assert http_get(engine.url + "/x", 5)[0] == 302
    assert engine.asked == ["/x"]


def test_listings_of_all_engines_are_put_together(engine: Engine, other: Engine) -> None:
    engine.reply = lambda _path: (200, {"runs": [shown()[1]["run"]], "complete": True})  # type: ignore[index]
    other.reply = engine.reply
    engines = of(Claims(engine.url, other.url, engine.url))
    assert len(engines.runs(RunState.RUNNING, "order", 10, 5)) == 2
    assert engine.asked == ["/runs?state=running&flow=order&limit=10"]
    assert len(engines.runs(None, "", 1, 5)) == 1
    other.reply = lambda _path: (503, {"error": "starting"})
    assert len(engines.runs(None, "", 10, 5)) == 1
    engine.reply = other.reply
    with pytest.raises(EngineUnavailable, match="starting"):
        engines.runs(None, "", 10, 5)


def waiting(claims: Claims, outcomes: Outcomes | None = None) -> Ending:
    return Ending(Place("r", 0, -1), outcomes or Outcomes(10), of(claims))


def test_the_end_is_waited_for_behind_everything_that_is_in_the_log(engine: Engine) -> None:
    engine.reply = lambda _path: shown("succeeded", "ended", context="gaF4AQ==")
    result = waiting(Claims(engine.url, end=12)).wait(5)
    assert (result.state, result.context, result.run_version) == (RunState.SUCCEEDED, {"x": 1}, 3)
    query = parse_qs(urlsplit(engine.asked[0]).query)
    assert (query["until"], query["min_offset"]) == (["ended"], ["11"])


def test_what_was_seen_of_a_run_never_goes_back(engine: Engine) -> None:
    replies = iter([shown(position=40), shown("cancelled", "ended", position=41)])
    engine.reply = lambda _path: next(replies)
    assert waiting(Claims(engine.url, end=3)).wait(5).context_omitted
    offsets = [parse_qs(urlsplit(path).query)["min_offset"] for path in engine.asked]
    assert offsets == [["2"], ["39"]]


def test_a_refused_start_ends_the_wait(engine: Engine) -> None:
    view = {"kind": "refused", "state": None, "reason": "cycle", "detail": "a > b > a"}
    engine.reply = lambda _path: shown(**view)  # type: ignore[arg-type]
    with pytest.raises(RunRefused, match="cycle: a > b > a"):
        waiting(Claims(engine.url)).wait(5)


def test_a_wait_that_ends_too_early_says_what_was_last_known(engine: Engine) -> None:
    engine.reply = lambda _path: shown("waiting")
    with pytest.raises(WaitTimeout, match="it is waiting at run version 3"):
        waiting(Claims(engine.url)).wait(0)
    engine.reply = lambda _path: RESTORING
    with pytest.raises(WaitTimeout, match="43% read back") as told:
        waiting(Claims(engine.url)).wait(0.2)
    assert isinstance(told.value.__cause__, EngineUnavailable)


def test_an_answer_to_this_client_ends_the_wait_though_no_engine_is_there() -> None:
    outcomes = Outcomes(10)
    ended = Answer(
        reply_to="c", run_id="r", kind="RunStarted", answer=AnswerType.ENDED,
        run_state=RunState.FAILED,
    )  # fmt: skip
    threading.Timer(0.1, outcomes.tell, [ended]).start()
    assert waiting(Claims(), outcomes).wait(20).state is RunState.FAILED


def test_a_run_of_this_client_is_not_asked_for(engine: Engine) -> None:
    outcomes = Outcomes(10)
    outcomes.begin("r")
    with pytest.raises(WaitTimeout):
        waiting(Claims(engine.url), outcomes).wait(0.05)
    assert engine.asked == []


def test_a_log_that_ends_with_the_mark_of_a_transaction_is_read_to_its_last_event(
    engine: Engine,
) -> None:
    def reply(path: str) -> Reply:
        wanted = int(parse_qs(urlsplit(path).query)["min_offset"][0])
        behind = {"error": "not_yet_read", "partition": 0, "position": 5, "lag": 0}
        return (503, behind) if wanted >= 5 else shown("succeeded", "ended")

    engine.reply = reply
    assert waiting(Claims(engine.url, end=6)).wait(20).succeeded


def test_the_engines_own_views_are_understood() -> None:
    log = Log()
    log.start(chain(2), "live", {"amount": 5})
    log.start(plan(step("a", needs=("b",)), step("b", needs=("a",))), "cyclic")
    live = read_run(dumps({"position": 9, "run": log.partition.run("live")}))
    assert (live.kind, live.state, live.context) == ("run", RunState.RUNNING, {"amount": 5})
    assert [each.step for each in live.steps] == ["s0", "s1"]
    assert live.step("s0").epoch == 1
    with pytest.raises(KeyError):
        live.step("s2")
    cyclic = read_run(dumps({"position": 9, "run": log.partition.run("cyclic")}))
    assert cyclic.refusal is not None
    assert cyclic.refusal.reason == "cycle"
    assert not cyclic.ended
    assert log.partition.is_open("live")
    assert not log.partition.is_open("cyclic")
    assert not log.partition.is_open("nobody")


def test_offsets_of_the_newest_keys_are_kept() -> None:
    offsets = LastOffsets(2)
    for key, offset in ((b"a", 1), (b"b", 2), (b"b", 1), (b"c", 3)):
        offsets.note(key, offset)
    assert [offsets.of(key) for key in (b"a", b"b", b"c")] == [-1, 2, 3]


def test_views_are_frozen() -> None:
    view = read_run(msgspec.json.encode(shown()[1]))
    with pytest.raises(AttributeError):
        view.state = RunState.FAILED  # type: ignore[misc]


def point(name: str, state: str, number: int, waiting: int = 0) -> dict[str, object]:
    dependency = name.partition("/")[0]
    return {
        "name": name, "dependency": dependency, "state": state, "window": 1, "number": number,
        "waiting": waiting,
    }  # fmt: skip


def test_a_service_may_call_what_no_breaker_is_open_for(engine: Engine, other: Engine) -> None:
    found = {
        engine: [point("pay", "open", 7, 2), point("mail", "open", 3), point("scan", "closed", 9)],
        other: [point("pay", "half_open", 8), point("mail", "half_open", 4)],
    }
    for each, points in found.items():
        each.reply = lambda _path, points=points: (200, {"fault_points": points})
    advice = Advice(of(Claims(engine.url, other.url)))
    answers = {name: advice.may_call(name, 5) for name in ("pay", "mail", "scan", "other")}
    assert answers == {"pay": False, "mail": True, "scan": True, "other": True}
    assert engine.asked == other.asked == ["/fault-points"]


def test_one_error_class_that_is_away_holds_the_whole_dependency(engine: Engine) -> None:
    engine.reply = lambda _path: (200, {"fault_points": [point("pay/timeout", "open", 7)]})
    assert not Advice(of(Claims(engine.url))).may_call("pay", 5)


def test_advice_is_asked_for_again_after_a_second(engine: Engine) -> None:
    now_s = [5.0]
    points = [point("pay", "open", 7)]
    engine.reply = lambda _path: (200, {"fault_points": points})
    advice = Advice(of(Claims(engine.url)), lambda: now_s[0])
    assert not advice.may_call("pay", 5)
    points.clear()
    assert not advice.may_call("pay", 5)
    now_s[0] += 1.0
    assert advice.may_call("pay", 5)


def test_without_any_engine_there_is_no_advice(engine: Engine) -> None:
    advice = Advice(of(Claims(engine.url)))
    with pytest.raises(EngineUnavailable, match="starting"):
        advice.may_call("pay", 5)
