"""Blobs in a store: kept once, verified, renewed under new names; and what a sweep takes."""

from __future__ import annotations

import pytest
from tests.unit.storage.blob_lab import GRACE_MS, BlobLab, flipped, packed

from dalsegno.schemas.blob import Blob
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing
from dalsegno.storage.blobs.sweep import Unheld

BLOB, DATA = packed(3_000)


@pytest.fixture
def lab() -> BlobLab:
    return BlobLab()


def sweep(lab: BlobLab, unheld: Unheld, *held: Blob) -> int:
    """A whole turn over partition 1; how many generations went."""
    listed = list(lab.store.stored(1))
    judged = unheld.judge(listed, {blob.digest for blob in held}, lab.clock.now_ms)
    going = [*judged.delete, *(old for old, new in judged.replaced if lab.store.whole(new))]
    assert lab.store.delete(going) == {}
    return len(going)


def test_what_is_put_comes_back(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    assert lab.store.get(1, BLOB) == DATA


def test_the_same_value_is_stored_once_however_often_it_is_put(lab: BlobLab) -> None:
    big, data = packed(125 * 1024)
    for _ in range(500):
        lab.store.put(1, big, data)
        lab.clock.now_ms += 3
    assert len(lab.keys()) == 1


def test_partitions_share_nothing(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    with pytest.raises(BlobMissing):
        lab.store.get(2, BLOB)
    lab.store.put(2, BLOB, DATA)
    assert [each.key.split("/")[2] for each in lab.store.stored()] == ["00001", "00002"]
    assert len(list(lab.store.stored(2))) == 1


def test_bytes_that_are_not_what_they_are_called_are_not_stored(lab: BlobLab) -> None:
    with pytest.raises(BlobCorrupt):
        lab.store.put(1, BLOB, flipped(DATA))
    assert lab.keys() == []


def test_a_flipped_bit_is_found_when_it_is_read(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.damage(lab.keys()[0], flipped)
    with pytest.raises(BlobCorrupt) as caught:
        lab.store.get(1, BLOB)
    assert caught.value.keys == (lab.keys()[0],)


@pytest.mark.parametrize("how", [lambda data: data[:-1], lambda data: data + b"x"])
def test_half_objects_and_longer_ones_are_found(lab: BlobLab, how: object) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.damage(lab.keys()[0], how)  # type: ignore[arg-type]
    with pytest.raises(BlobCorrupt):
        lab.store.get(1, BLOB)


def test_a_damaged_blob_is_mended_by_putting_it_again(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.damage(lab.keys()[0], flipped)
    assert not lab.store.renew(1, BLOB)
    lab.store.put(1, BLOB, DATA)
    assert lab.store.get(1, BLOB) == DATA


def test_a_store_that_lies_about_what_it_took_is_not_believed(lab: BlobLab) -> None:
    lab.objects.lie = lambda _key, data: flipped(data)
    with pytest.raises(ArchiveError) as caught:
        lab.store.put(1, BLOB, DATA)
    assert caught.value.trouble is Trouble.DAMAGED


def test_a_put_whose_answer_was_lost_is_put_again(lab: BlobLab) -> None:
    lab.objects.lose_answers = 1
    with pytest.raises(ArchiveError):
        lab.store.put(1, BLOB, DATA)
    lab.store.put(1, BLOB, DATA)
    assert len(lab.keys()) == 1


@pytest.mark.parametrize("trouble", [Trouble.UNREACHABLE, Trouble.FULL, Trouble.DENIED])
def test_trouble_of_the_store_is_not_taken_for_a_missing_blob(
    lab: BlobLab, trouble: Trouble
) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.objects.down = trouble
    for call in (
        lambda: lab.store.get(1, BLOB),
        lambda: lab.store.renew(1, BLOB),
        lambda: lab.store.put(1, BLOB, DATA),
    ):
        with pytest.raises(ArchiveError) as caught:
            call()
        assert caught.value.trouble is trouble


def test_a_young_blob_is_taken_as_it_is_and_an_old_one_gets_another_name(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.clock.now_ms += GRACE_MS // 2 - 1
    assert lab.store.renew(1, BLOB)
    assert len(lab.keys()) == 1
    lab.clock.now_ms += 1
    assert lab.store.renew(1, BLOB)
    assert len(lab.keys()) == 2


def test_a_name_from_a_clock_that_was_ahead_does_not_count_as_young(lab: BlobLab) -> None:
    lab.clock.now_ms += GRACE_MS  # of another machine, as the name says
    lab.store.put(1, BLOB, DATA)
    [key] = lab.keys()
    lab.memory._objects[key] = (DATA, lab.clock.now_ms - GRACE_MS)  # as the store dates it
    lab.store.put(1, BLOB, DATA)
    newest = max(each.at_ms for each in lab.store.stored(1))
    assert lab.clock.now_ms - newest < GRACE_MS // 2


def test_nothing_goes_while_a_run_holds_it(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    unheld = Unheld(GRACE_MS)
    for _ in range(10):
        assert sweep(lab, unheld, BLOB) == 0
        lab.clock.now_ms += GRACE_MS
    assert lab.store.get(1, BLOB) == DATA


def test_what_nobody_holds_goes_after_a_grace_and_not_before(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    unheld = Unheld(GRACE_MS)
    assert sweep(lab, unheld) == 0
    lab.clock.now_ms += GRACE_MS
    assert sweep(lab, unheld) == 0
    lab.clock.now_ms += 1
    assert sweep(lab, unheld) == 1
    assert lab.keys() == []


def test_what_was_held_until_now_waits_for_a_grace_of_its_own(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    unheld = Unheld(GRACE_MS)
    lab.clock.now_ms += 5 * GRACE_MS
    assert sweep(lab, unheld, BLOB) == 0
    assert sweep(lab, unheld) == 0, "a handoff on its way may still name it"
    lab.clock.now_ms += GRACE_MS + 1
    assert sweep(lab, unheld) == 1


def test_the_older_generation_goes_when_the_newer_is_whole(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    lab.clock.now_ms += GRACE_MS // 2
    lab.store.put(1, BLOB, DATA)
    lab.clock.now_ms += GRACE_MS // 2 + 1
    older, newer = lab.keys()
    lab.damage(newer, flipped)
    assert sweep(lab, Unheld(GRACE_MS), BLOB) == 0
    assert lab.store.get(1, BLOB) == DATA, "from the older one"
    lab.damage(newer, flipped)
    assert sweep(lab, Unheld(GRACE_MS), BLOB) == 1
    assert lab.keys() == [newer]
    assert older != newer


def test_a_sweep_hits_nothing_that_was_put_since_its_listing(lab: BlobLab) -> None:
    lab.store.put(1, BLOB, DATA)
    unheld = Unheld(GRACE_MS)
    unheld.judge(list(lab.store.stored(1)), (), lab.clock.now_ms)
    lab.clock.now_ms += GRACE_MS + 1
    listed = list(lab.store.stored(1))
    lab.store.put(1, BLOB, DATA)  # an event that names it will follow
    judged = unheld.judge(listed, (), lab.clock.now_ms)
    assert len(judged.delete) == 1
    lab.store.delete(judged.delete)
    assert lab.store.get(1, BLOB) == DATA


def test_objects_of_other_names_are_left_alone(lab: BlobLab) -> None:
    lab.memory.put("p/blobs/00001/readme", b"x")
    lab.memory.put("p/blobs/00001/" + "z" * 64 + "/1", b"x")
    lab.memory.put("p/segments/00001/x", b"x")
    assert list(lab.store.stored(1)) == []
    assert list(lab.store.stored()) == []


def test_figures_of_a_sweep(lab: BlobLab) -> None:
    other, more = packed(2_000, 7)
    lab.store.put(1, BLOB, DATA)
    lab.store.put(1, other, more)
    judged = Unheld(GRACE_MS).judge(list(lab.store.stored(1)), {BLOB.digest}, lab.clock.now_ms)
    assert (judged.blobs, judged.bytes_stored, judged.unheld) == (2, 5_000, 1)
