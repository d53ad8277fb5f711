"""Commands sign as engines do: by the first of their keys that the policy lists."""

from __future__ import annotations

import pytest

from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.kafka import signing, writer
from dalsegno.ops.kafka.reader import LogRecord, ReadError
from dalsegno.ops.kafka.signing import NoKeyError, key_in_force
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import headers
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.partition_parts import PARTITION_KEY
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.settings import EngineSettings

SETTINGS = EngineSettings(
    bootstrap_servers="127.0.0.1:1", mac_keys="k1:" + "01" * 32 + ",k2:" + "02" * 32
)


def own_part(*listed: str) -> bytes:
    saved = Partition(0)
    event = PolicySet(partition=0, number=1, policy=Policy(mac_keys=listed))
    saved.apply(Record(0, 1, b"", b"", event))
    return saved.parts()[PARTITION_KEY]


class Changelog:
    """Stands for the reader of a changelog that holds these own parts, and others between."""

    def __init__(self, *own: bytes, behind: int = 0) -> None:
        values = [(PARTITION_KEY, each) for each in own] + [(b"rx", b"")] * behind
        self.records = [
            LogRecord(0, number, 0, key, value, ()) for number, (key, value) in enumerate(values)
        ]
        self.read_from: list[int] = []

    def __enter__(self) -> Changelog:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def bounds(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, len(self.records)

    def read(self, topic: str, _partition: int, start: int) -> list[LogRecord]:
        assert topic == SETTINGS.topics.runs_changelog
        self.read_from.append(start)
        return self.records[start:]


def key(changelog: Changelog, settings: EngineSettings = SETTINGS) -> str:
    return key_in_force(settings, changelog, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listed", "signs"), [((), "k1"), (("k1", "k2"), "k1"), (("k2",), "k2"), (("k0", "k2"), "k2")]
)
def test_the_first_key_that_the_policy_lists_signs(listed: tuple[str, ...], signs: str) -> None:
    assert key(Changelog(own_part("k0"), own_part(*listed))) == signs


def test_before_a_checkpoint_the_first_signs() -> None:
    assert key(Changelog()) == "k1"


def test_the_last_checkpoint_is_found_near_the_end_or_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signing, "_TAIL", 3)
    near, far = (Changelog(own_part("k2"), own_part("k2"), behind=n) for n in (2, 9))
    assert (key(near), near.read_from) == ("k2", [1])
    assert (key(far), far.read_from) == ("k2", [8, 0])


def test_with_no_key_in_force_nothing_is_appended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoKeyError) as refused:
        key(Changelog(own_part("k0", "k9")))
    assert app.ended_by(refused.value) == ExitCode.USAGE
    assert "mac_keys (k0, k9)" in capsys.readouterr().err
    with pytest.raises(NoKeyError, match="id:hex"):
        key(Changelog(), EngineSettings())
    with pytest.raises(ReadError, match="release"):
        key(Changelog(b"of another format"))


def test_a_writer_signs_with_it_and_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    changelog = Changelog(own_part("k2"))
    monkeypatch.setattr(writer, "Reader", lambda _: changelog)
    signed: list[bytes] = []

    def append(_writer: Writer, *record: object) -> int:
        name, mac = record[-1][0]  # type: ignore[index]
        assert name == headers.MAC
        signed.append(mac)
        return 0

    monkeypatch.setattr(Writer, "append", append)
    console = Writer(SETTINGS)
    for number in (1, 2):
        policy = Policy(mac_keys=("k2",))
        console.append_control(PolicySet(partition=0, number=number, policy=policy))
    assert [mac.partition(b":")[0] for mac in signed] == [b"k2", b"k2"]
    assert changelog.read_from == [0]


def test_behind_a_policy_that_it_appends_a_writer_signs_by_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where runs are brought into an empty cluster, with the policy that they had."""
    monkeypatch.setattr(writer, "Reader", lambda _: Changelog())
    monkeypatch.setattr(Writer, "append", lambda *_: 0)
    console = Writer(SETTINGS)
    assert console.key(0) == "k1"
    policy = Policy(mac_keys=("k2",))
    console.append_control(PolicySet(partition=0, number=1, policy=policy))
    assert console.key(0) == "k2"
