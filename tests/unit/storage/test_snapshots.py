"""Snapshot chains: every version comes back byte for byte, and nothing damaged is believed."""

from __future__ import annotations

import gc
import hashlib
import resource
import struct
import tracemalloc
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.schemas.control import Policy
from dalsegno.storage.frame import FrameError, decompress, store
from dalsegno.storage.snapshots.chain import About, ChainWriter, prune, restore
from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt
from dalsegno.storage.snapshots.link import Header, LinkKind, Version, read_link, write_link
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_delta import ops_between

pack = msgspec.msgpack.encode
POLICY = Policy(context_bytes_max=64 << 20, inline_bytes_max=32 << 20)


def about(version: int) -> About:
    return About(
        step=f"s{version}",
        run_version=version,
        plan_digest=b"p" * 32,
        schema="applicant",
        schema_version=2,
        at_ms=1_700_000_000_000 + version,
        dependencies=("bank", "mail"),
    )


class History:
    """A run whose context changes, its links, and the packed context at each."""

    def __init__(self, run_id: str = "r") -> None:
        self.writer = ChainWriter(run_id)
        self.context = Context.create(pack({"log": [], "n": 0}), POLICY)
        self.links: list[bytes] = []
        self.contexts: list[bytes] = []
        self.version = 1
        self.put(None)

    def put(self, operations: bytes | None) -> None:
        context = self.context
        self.links.append(
            self.writer.add(about(self.version), context.size_bytes, context.pack, operations)
        )
        self.contexts.append(context.pack())
        self.version += 1

    def change(self, *ops: list[object]) -> None:
        operations = pack(ops)
        self.context.apply(operations, POLICY).adopt()
        self.put(operations)


def history(steps: int = 40, seed: int = 1, run_id: str = "r") -> History:
    random = Random(seed)
    made = History(run_id)
    for step in range(steps):
        words = " ".join(random.choice(("paid", "sent", "checked", "again")) for _ in range(30))
        made.change(["app", ["log"], [{"step": step, "said": words}]], ["set", ["n"], step])
    return made


def kinds(links: Sequence[bytes]) -> list[LinkKind]:
    return [read_link("r", data).header.kind for data in links]


def test_every_version_of_a_chain_comes_back_byte_for_byte() -> None:
    made = history(200)
    assert kinds(made.links).count(LinkKind.BASE) > 1, "the chain was begun anew"
    assert kinds(made.links).count(LinkKind.DELTA) > 100
    for place, context in enumerate(made.contexts):
        found = restore("r", made.links, run_version=place + 1)
        assert (found.context, found.place, found.faults) == (context, place, ())
    newest = restore("r", made.links)
    assert newest.context == made.contexts[-1]
    assert newest.header.step == "s201"
    assert newest.header.dependencies == ("bank", "mail")
    assert (newest.header.schema, newest.header.schema_version) == ("applicant", 2)


def test_deltas_are_a_small_part_of_what_whole_snapshots_take() -> None:
    made = history(60)
    whole = sum(len(zstandard.compress(context, 3)) for context in made.contexts)
    assert sum(len(read_link("r", link).stored) for link in made.links) < whole / 3


def test_a_writer_that_is_resumed_goes_on_as_the_first_would_have() -> None:
    straight, resumed = history(60, seed=3), history(20, seed=3)
    resumed.writer = ChainWriter.resume("r", resumed.links)
    rest = history(60, seed=3)
    for place in range(21, 61):
        version = place + 1
        context = rest.contexts[place]
        before = rest.contexts[place - 1]
        resumed.links.append(
            resumed.writer.add(
                about(version),
                read_link("r", rest.links[place]).header.context_bytes,
                lambda context=context: context,  # type: ignore[misc]
                ops_between(before, context),
            )
        )
    assert restore("r", resumed.links).context == straight.contexts[-1]
    assert kinds(resumed.links) == kinds(straight.links)


def test_behind_a_damaged_link_a_resumed_writer_begins_anew() -> None:
    made = history(5)
    made.links[-1] = made.links[-1][:-1]
    made.writer = ChainWriter.resume("r", made.links)
    made.change(["set", ["n"], 99])
    assert kinds(made.links[-1:]) == [LinkKind.BASE]
    assert restore("r", made.links).context == made.contexts[-1]


@given(st.data())
def test_any_damage_costs_only_what_comes_behind_it(data: st.DataObject) -> None:
    made = _MADE
    place = data.draw(st.integers(0, len(made.links) - 1))
    link = made.links[place]
    how = data.draw(st.sampled_from(["flip", "cut", "extend", "swap"]))
    if how == "flip":
        at = data.draw(st.integers(0, len(link) * 8 - 1))
        changed = bytearray(link)
        changed[at // 8] ^= 1 << at % 8
        damaged, expected = bytes(changed), None
    elif how == "cut":
        damaged, expected = link[: data.draw(st.integers(0, len(link) - 1))], None
    elif how == "extend":
        damaged, expected = link + data.draw(st.binary(min_size=1, max_size=40)), Fault.TRAILING
    else:
        damaged, expected = _OTHER.links[place], Fault.RUN
    with pytest.raises(SnapshotCorrupt) as caught:
        read_link("r", damaged)
    if expected is not None:
        assert caught.value.fault is expected
    links = [*made.links[:place], damaged, *made.links[place + 1 :]]
    following = [n for n in _BASES if n > place]
    found = restore("r", links)
    good = len(links) - 1 if following else place - 1
    assert (found.place, found.context) == (good, made.contexts[good])


def test_links_out_of_order_or_missing_are_noticed() -> None:
    first = _BASES[-1] + 3
    links = _MADE.links
    assert first + 2 < len(links), "deltas follow the last base"
    swapped = [*links[:first], links[first + 1], links[first], *links[first + 2 :]]
    found = restore("r", swapped)
    assert (found.place, found.context) == (first - 1, _MADE.contexts[first - 1])
    assert [fault.fault for fault in found.faults] == [Fault.ORDER]
    missing = restore("r", links[:first] + links[first + 1 :])
    assert missing.context == _MADE.contexts[first - 1]
    assert [fault.fault for fault in missing.faults] == [Fault.ORDER]


def test_what_is_cut_is_told_from_what_was_changed() -> None:
    link = history(0).links[0]
    faults = []
    for damaged in (link[:-1], link[:20], link + b"x", link[:-40] + b"\0" + link[-39:], b"no"):
        with pytest.raises(SnapshotCorrupt) as caught:
            read_link("r", damaged)
        faults.append(caught.value.fault)
    assert faults == [
        Fault.TRUNCATED,
        Fault.TRUNCATED,
        Fault.TRAILING,
        Fault.DIGEST,
        Fault.TRUNCATED,
    ]


def test_a_newer_format_is_said_to_be_one() -> None:
    link = bytearray(history(0).links[0])
    link[4] = 2
    with pytest.raises(SnapshotCorrupt, match="upgrade"):
        read_link("r", bytes(link))


def header(**fields: object) -> Header:
    made = Header(LinkKind.BASE, "r", "s", 1, b"", "", 0, (), 0, 0, 0, 0, b"")
    return msgspec.structs.replace(made, **fields)


def forged(head: Header, stored: bytes) -> bytes:
    """A link with a right digest over whatever its header says."""
    packed = pack(head)
    body = struct.pack(">4sBI", b"dsn1", 1, len(packed)) + packed + stored
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"payload_bytes": 1 << 62, "stored_bytes": 5}, Fault.TOO_LARGE),
        ({"context_bytes": 1 << 40, "stored_bytes": 5, "payload_bytes": 9}, Fault.TOO_LARGE),
        ({"stored_bytes": 4, "payload_bytes": 9}, Fault.HEADER),
        ({"stored_bytes": 5, "payload_bytes": 4}, Fault.HEADER),
        ({"run_version": -1, "stored_bytes": 5, "payload_bytes": 5}, Fault.HEADER),
        ({"run_id": "other", "stored_bytes": 5, "payload_bytes": 5}, Fault.RUN),
    ],
)
def test_a_header_that_cannot_be_is_refused_though_its_digest_is_right(
    fields: dict[str, object], fault: Fault
) -> None:
    with pytest.raises(SnapshotCorrupt) as caught:
        read_link("r", forged(header(**fields), b"12345"))
    assert caught.value.fault is fault


def test_headers_that_are_no_headers_are_refused() -> None:
    for packed in (b"", b"\x90", pack({"kind": 0}), pack([0] * 40), b"\xc1"):
        body = struct.pack(">4sBI", b"dsn1", 1, len(packed)) + packed
        with pytest.raises(SnapshotCorrupt) as caught:
            read_link("r", body + hashlib.sha256(body).digest())
        assert caught.value.fault is Fault.HEADER


def test_a_frame_of_a_few_bytes_that_declares_exabytes_costs_nothing() -> None:
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 1 << 62)
    assert zstandard.get_frame_parameters(frame).content_size == 1 << 62
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    link = forged(header(stored_bytes=len(frame), payload_bytes=60 << 20), frame)
    with pytest.raises(SnapshotCorrupt) as caught:
        restore("r", [link])
    assert caught.value.fault is Fault.FRAME
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10, "KiB"


def test_a_frame_ends_where_its_link_ends() -> None:
    frame = zstandard.compress(b"x" * 1_000)
    assert decompress(frame, 1_000) == b"x" * 1_000
    for damaged in (frame + b"more", frame[:-1], frame + frame, b"", b"\0" * 12):
        with pytest.raises(FrameError):
            decompress(damaged, 1_000)


def test_operations_that_do_not_fit_are_a_fault_of_their_link() -> None:
    made = history(2)
    base = read_link("r", made.links[0])
    head = msgspec.structs.replace(
        base.header, kind=LinkKind.DELTA, run_version=9, previous=base.digest
    )
    for payload in (pack([["app", ["nothing"], [1]]]), b"\xc1"):
        link, _ = write_link(head, payload, store(payload))
        found = restore("r", [made.links[0], link])
        assert found.place == 0
        assert [fault.fault for fault in found.faults] == [Fault.CONTENT]
    payload = pack([["set", ["n"], 5]])
    head = msgspec.structs.replace(head, context_bytes=77)
    link, _ = write_link(head, payload, store(payload))
    assert restore("r", [made.links[0], link]).faults[0].fault is Fault.CONTENT


def test_a_link_whose_version_does_not_grow_is_no_next_link() -> None:
    base = history(0).links[0]
    first = read_link("r", base)
    payload = pack([["set", ["n"], 5]])
    head = msgspec.structs.replace(first.header, kind=LinkKind.DELTA, previous=first.digest)
    link, _ = write_link(head, payload, store(payload))
    assert [fault.fault for fault in restore("r", [base, link]).faults] == [Fault.ORDER]


@pytest.mark.parametrize("keep", [1, 3, 17, 60, 500])
def test_pruning_makes_the_base_anew_and_every_kept_link_restores(keep: int) -> None:
    made = history(60)
    kept = prune("r", made.links, keep)
    want = made.contexts[-keep:]
    assert len(kept) == len(want)
    assert kinds(kept)[0] is LinkKind.BASE
    first = len(made.contexts) - len(want)
    for place, context in enumerate(want):
        found = restore("r", kept, run_version=first + place + 1)
        assert (found.context, found.header.step) == (context, f"s{first + place + 1}")


def test_nothing_is_pruned_from_a_chain_that_cannot_be_read() -> None:
    made = history(20)
    links = [*made.links[:10], b"gone", *made.links[11:]]
    with pytest.raises(SnapshotCorrupt):
        prune("r", links, 3)


def test_a_version_that_does_not_grow_is_refused() -> None:
    made = history(1)
    made.version -= 1
    with pytest.raises(ValueError, match="version 2 after 2"):
        made.change(["set", ["n"], 5])


def test_without_operations_a_base_follows() -> None:
    made = history(3)
    made.context.apply(pack([["set", ["n"], 9]]), POLICY).adopt()
    made.put(None)
    assert kinds(made.links)[-1] is LinkKind.BASE
    assert restore("r", made.links).context == made.contexts[-1]


def test_a_context_that_is_written_anew_is_stored_whole_by_the_chains_dictionary() -> None:
    made = history(30)
    text = made.contexts[-1].hex()
    made.change(["set", ["log"], [text[:2_000]]])
    made.change(["set", ["log"], [text[:2_000] + "x"]])
    assert restore("r", made.links).context == made.contexts[-1]


def test_an_older_version_than_any_is_not_there() -> None:
    with pytest.raises(SnapshotCorrupt) as caught:
        restore("r", history(3).links, run_version=0)
    assert caught.value.fault is Fault.ORDER


_MADE = history(90)
_OTHER = history(90, seed=2, run_id="other")
_BASES = [place for place, kind in enumerate(kinds(_MADE.links)) if kind is LinkKind.BASE]


def test_a_chains_end_weighs_what_it_holds_of_a_long_plan() -> None:
    settled = tuple((place, 1) for place in range(2_000))
    version = Version(1, 0, "s1", 1_700_000_000_000, 7, "running", (), settled)
    first = msgspec.structs.replace(about(1), versions=(version,))
    gc.collect()
    tracemalloc.start()
    try:
        writers = [ChainWriter("r") for _ in range(50)]
        for writer in writers:
            writer.add(first, 1, lambda: pack({}), None)
        gc.collect()
        took = tracemalloc.get_traced_memory()[0] / len(writers)
    finally:
        tracemalloc.stop()
    assert len(writers[0].settled) == len(settled)
    assert took / 2 < writers[0].weight < 2 * took
