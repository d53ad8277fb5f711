"""Questions for a run as it was."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from tests.unit.client.test_engines import HERE, Claims, Engine, of, shown
from tests.unit.core.log import Log, chain

from dalsegno.client import RunState, UnknownRun, VersionNotKept
from dalsegno.streams.engine.jsonable import dumps


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def test_an_earlier_version_is_a_view_of_its_own(engine: Engine) -> None:
    log = Log()
    log.partition.versions.keep()
    log.start(chain(2), context={"in": 1})
    then = log.partition.versions.now("r")
    engine.reply = lambda _path: (200, msgspec.json.decode(dumps({"version": then})))
    found = of(Claims(engine.url)).version(HERE, 1, 5)
    assert parse_qs(urlsplit(engine.asked[0]).query)["version"] == ["1"]
    assert (found.run_version, found.context, found.settled) == (1, {"in": 1}, {})
    assert found.state is RunState.RUNNING


def test_a_version_that_is_not_kept_is_no_unknown_run(engine: Engine) -> None:
    told = {"error": "version_not_kept", "detail": "its versions are 1 to 3", "newest": 3}
    engine.reply = lambda _path: (404, told)
    with pytest.raises(VersionNotKept, match="version 9: its versions are 1 to 3") as raised:
        of(Claims(engine.url)).version(HERE, 9, 5)
    assert (raised.value.version, raised.value.newest) == (9, 3)
    engine.reply = lambda _path: (404, {"error": "unknown_run"})
    with pytest.raises(UnknownRun):
        of(Claims(engine.url)).version(HERE, 9, 5)


def test_a_run_that_another_client_has_just_started_is_found(engine: Engine) -> None:
    log = Log()
    log.partition.versions.keep()
    log.start(chain(2), context={"in": 1})
    then = msgspec.json.decode(dumps({"version": log.partition.versions.now("r")}))
    replies = iter([(404, {"error": "unknown_run"}), shown(), (200, then)])
    engine.reply = lambda _path: next(replies)
    assert of(Claims(engine.url, end=10)).version(HERE, 1, 60).context == {"in": 1}
