"""Bad input, wrong topics, and partitions that cannot go on: each costs only itself."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.integration.engine.harness import Lab, flags, wait_for
from tests.integration.engine.tiny_fold import TinyFold

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.control import ClockTick
from dalsegno.schemas.events import RiskFlagged
from dalsegno.schemas.outputs import DeadLetter
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.app import ExitCode
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka


def flag(run: str, number: int, **more: str) -> RiskFlagged:
    return RiskFlagged(run_id=run, flag_id=str(number), **{"flag": "x", **more})


def letters(lab: Lab) -> dict[str, tuple[DeadLetter, bytes, dict[str, bytes]]]:
    """Dead letters by reason."""
    found = {}
    for number in range(lab.partitions):
        for message in lab.read(lab.topics.dead_letters, number):
            named = dict(message.headers())
            letter = decode(named[headers.DEAD_LETTER])
            assert isinstance(letter, DeadLetter)
            found[letter.reason] = (letter, message.value(), named)
    return found


def test_bad_records_become_dead_letters_and_their_neighbours_go_on(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    good = [flag(f"run-{i}", i) for i in range(20)]
    lab.send(good[:10])
    whole = encode(flag("run-0", 99))
    wrong = (partition_for("run-0", lab.partitions) + 1) % lab.partitions
    lab.send_raw(0, b"k", b"", [("kept", b"as it was")])
    lab.send_raw(0, b"k", b'{"json": 1}')
    lab.send_raw(wrong, b"run-0", whole)
    lab.send_raw(partition_for("run-0", lab.partitions), b"other", whole)
    lab.send_raw(partition_for("run-0", lab.partitions), b"run-0", whole + b"\x00")
    tick = encode(ClockTick(partition=0, number=10**15))
    lab.send_raw(0, b"0", tick)
    lab.send_raw(0, b"0", tick, [(headers.MAC, b"k1:" + bytes(32))])
    lab.send(good[10:])

    want = {"bad_frame", "wrong_partition", "wrong_key", "trailing_bytes", "no_mac", "bad_mac"}
    wait_for("dead letters", lambda: want <= letters(lab).keys())
    found = letters(lab)
    letter, value, _ = found["wrong_partition"]
    assert str(partition_for("run-0", lab.partitions)) in letter.detail
    assert value == whole
    kept = [m for m in lab.read(lab.topics.dead_letters, 0) if dict(m.headers()).get("kept")]
    assert len(kept) == 1

    def all_good() -> bool:
        kept = lab.ordered(lab.topics.transitions)
        return sum(map(len, kept.values())) == len(good)

    wait_for("the good ones", all_good)
    assert engine.term() == 0
    for report in verify(lab.settings, TinyFold, lab.partitions):
        assert report.right, report.differences
        assert sum(report.counts.values()) + report.waiting == report.events


def test_an_output_that_no_topic_takes_keeps_its_place_and_says_so(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send([flag("run-0", 0), flag("run-0", 1, flag="huge"), flag("run-0", 2)])
    number = partition_for("run-0", lab.partitions)
    wait_for("three", lambda: len(lab.ordered(lab.topics.transitions)[number]) == 3)
    second = lab.ordered(lab.topics.transitions)[number][1][1]
    assert second.value() == b""
    assert dict(second.headers())[headers.OMITTED] == b"too_large"


def test_a_fold_that_breaks_its_word_stops_its_partition_and_no_other(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    bad = partition_for("bad", lab.partitions)
    lab.send([flag("bad", 0, flag="raise")])
    others = [f"run-{i}" for i in range(40) if partition_for(f"run-{i}", lab.partitions) != bad]
    lab.send([flag(run, i) for i, run in enumerate(others)])
    wait_for("rebuilds", lambda: "dalsegno_partition_rebuilds_total{" in engine.text("/metrics"))

    def others_done() -> bool:
        kept = lab.ordered(lab.topics.transitions)
        return sum(map(len, kept.values())) == len(others)

    wait_for("the other partitions", others_done)
    assert engine.get("/livez")[0] == 200


def test_a_queue_without_a_topic_waits_for_it_and_loses_nothing(lab: Lab) -> None:
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    for future in admin.delete_topics([lab.topics.queue("default")]).values():
        future.result(20)
    engine = lab.engine()
    wait_for("refused without any queue", lambda: engine.process.poll() is not None)
    assert engine.process.returncode == ExitCode.START_REFUSED
    assert "dalsegno topics create" in engine.tail()
    TopicAdmin(lab.settings).create(("other",))
    for future in admin.delete_topics([lab.topics.queue("default")]).values():
        future.result(20)
    engine.restart()
    engine.wait_ready()
    lab.send([flag("run-0", 0), flag("run-0", 1)])

    def named() -> bool:
        status, body = engine.get("/readyz")
        return status == 503 and "topics create --queue default" in str(body)

    wait_for("the missing topic is named", named)
    TopicAdmin(lab.settings).create(("default",))
    number = partition_for("run-0", lab.partitions)
    wait_for("the handoff", lambda: len(lab.ordered(lab.topics.queue("default"))[number]) == 1)


def test_dead_letters_that_cannot_be_written_are_seen_and_written_in_the_end(lab: Lab) -> None:
    """R119: the write of a dead letter failed, and everything looked well."""
    engine = lab.engine()
    engine.wait_ready()
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    for future in admin.delete_topics([lab.topics.dead_letters]).values():
        future.result(20)
    number = partition_for("run-0", lab.partitions)
    lab.send([flag("run-0", 0)])
    lab.send_raw(number, b"k", b"no event")
    lab.send([flag("run-0", 1)])
    wait_for("rebuilds", lambda: "dalsegno_partition_rebuilds_total{" in engine.text("/metrics"))
    wait_for("not ready", lambda: engine.get("/readyz")[0] == 503)
    TopicAdmin(lab.settings).create(())
    wait_for("the letter", lambda: letters(lab).keys() == {"bad_frame"})
    engine.wait_ready()
    engine.wait_caught_up()
    assert engine.term() == 0
    assert len(lab.read(lab.topics.dead_letters, number)) == 1
    assert len(lab.ordered(lab.topics.transitions)[number]) == 2
    for report in verify(lab.settings, TinyFold, lab.partitions):
        assert report.right, report.differences


def test_a_start_is_refused_with_every_fault(lab: Lab) -> None:
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    grown = admin.create_partitions([NewPartitions(lab.topics.transitions, 6)])
    grown[lab.topics.transitions].result(20)
    engine = lab.engine()
    assert engine.process.wait(90) == ExitCode.START_REFUSED
    assert "6 partitions" in engine.tail()


def test_a_live_change_of_the_partition_count_stops_intake(lab: Lab) -> None:
    engine = lab.engine(DALSEGNO_METADATA_AGE_MAX_MS="1000")
    engine.wait_ready()
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    admin.create_partitions([NewPartitions(lab.topics.events, 6)])[lab.topics.events].result(20)
    assert engine.process.wait(90) == ExitCode.FAILED
    assert "had 4 partitions and now has 6" in engine.tail()
    engine.restart()
    assert engine.process.wait(90) == ExitCode.START_REFUSED


def test_runs_keep_the_count_that_they_were_laid_out_by(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    assert engine.term() == 0
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    alike = [
        name
        for name, facts in TopicAdmin(lab.settings).facts().items()
        if facts.partitions == lab.partitions
    ]
    for future in admin.create_partitions([NewPartitions(name, 6) for name in alike]).values():
        future.result(20)
    engine.restart()
    assert engine.process.wait(90) == ExitCode.START_REFUSED
    assert "laid out over 4 partitions, the topics have 6" in engine.tail()


def test_events_that_were_deleted_and_made_anew_are_no_continuation(lab: Lab) -> None:
    """Also where the new log is longer than the old one: an engine would read on in its middle."""
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(40, 10))
    wait_for("applied", lambda: lab.end(lab.topics.transitions, 1) > 0)
    assert engine.term() == 0
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    for future in admin.delete_topics([lab.topics.events]).values():
        future.result(20)
    wait_for("deleted", lambda: lab.topics.events not in TopicAdmin(lab.settings).facts())
    TopicAdmin(lab.settings).create((), partitions=lab.partitions)
    lab.send(flags(400, 10))
    engine.restart()
    assert engine.process.wait(90) == ExitCode.START_REFUSED
    assert "is another topic than the one that was read before" in engine.tail()


def test_a_checkpoint_behind_the_log_start_stops_the_partition_by_name(lab: Lab) -> None:
    engine = lab.engine()
    engine.wait_ready()
    lab.send(flags(200, 10))
    wait_for("applied", lambda: lab.end(lab.topics.transitions, 1) > 0)
    assert engine.term() == 0
    lab.send(flags(200, 10, 200))
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    places = [
        TopicPartition(lab.topics.events, number, lab.end(lab.topics.events, number))
        for number in range(lab.partitions)
    ]
    for future in admin.delete_records(places).values():
        future.result(20)
    engine.restart()

    def stopped() -> bool:
        return "behind_log_start" in str(engine.get("/readyz")[1])

    wait_for("stopped by name", stopped)


def test_without_a_key_the_engine_says_how_to_make_one(lab: Lab) -> None:
    engine = lab.engine(DALSEGNO_MAC_KEYS="")
    assert engine.process.wait(90) == ExitCode.START_REFUSED
    assert "DALSEGNO_MAC_KEYS" in engine.tail()


def test_settings_parse_keys_and_keep_them_out_of_sight() -> None:
    settings = EngineSettings.model_validate({"mac_keys": "a:" + "11" * 16 + ",b:" + "22" * 16})
    assert settings.signing_key == "a"
    assert settings.keyring.ids == ("a", "b")
    assert "1111" not in repr(settings)
    with pytest.raises(ValueError, match="id:hex"):
        EngineSettings.model_validate({"mac_keys": "nocolon"})
