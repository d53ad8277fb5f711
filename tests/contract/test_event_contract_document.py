"""What the event contract's page says is what the code does."""

import re
from pathlib import Path

from dalsegno.schemas import codec, headers, mac, values, wire
from dalsegno.schemas.errors import Fault
from dalsegno.schemas.partitioner import murmur2, partition_for
from dalsegno.schemas.topics import Topics

PAGE = (Path(__file__).parents[2] / "docs/event-contract.md").read_text(encoding="utf-8")


def test_the_partitioners_vectors_are_right() -> None:
    rows = re.findall(r"^\| (\(empty\)|`[^`]+`) \| (-?\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for name, signed, partitions in rows:
        run_id = "" if name == "(empty)" else name.strip("`")
        assert murmur2(run_id.encode()) == int(signed) & 0xFFFFFFFF, run_id
        expected = [int(each) for each in partitions.split("|")]
        assert [partition_for(run_id, count) for count in (3, 8, 12, 64)] == expected, run_id


def test_every_reason_header_and_topic_is_explained() -> None:
    names = [value for name, value in vars(headers).items() if name.isupper()]
    topics = Topics()
    addresses = [
        topics.events, topics.heartbeats, topics.control, topics.transitions, topics.escalations,
        topics.faults, topics.owners, topics.dead_letters, topics.queue("<name>"),
        topics.runs_changelog, topics.faults_changelog,
    ]  # fmt: skip
    for word in (*Fault, *names, *addresses):
        assert f"`{word}`" in PAGE, word


def test_the_limits_are_the_codes() -> None:
    assert "over 16 MiB" in PAGE
    assert codec.VALUE_BYTES_MAX == 16 * 2**20
    assert "at most 65,536 elements" in PAGE
    assert wire.ITEMS_MAX == 65_536
    assert "more than 64\nlevels" in PAGE
    assert values.DEPTH_MAX == 64
    assert "1 to 64 of `A-Z" in PAGE
    assert mac.KEY_ID_CHARS_MAX == 64
