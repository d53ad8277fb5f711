"""The memory of decoded plans: bounded, and never of more bytes than there were."""

from dalsegno.schemas import recent
from dalsegno.schemas.recent import Recent


class Counting:
    """Decodes a value of a stated size, and counts how often it is asked."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = 0

    def __call__(self, data: bytes, at: int) -> tuple[bytes, int]:
        self.calls += 1
        return data[at : at + self.size], at + self.size


def test_the_same_bytes_are_decoded_once_wherever_they_stand() -> None:
    decode = Counting(4)
    memory = Recent(decode)
    tail = b"t" * recent.KEY_BYTES
    assert memory(b"abcd" + tail, 0) == (b"abcd", 4)
    assert memory(b"__abcd" + tail, 2) == (b"abcd", 6)
    assert decode.calls == 1
    assert memory(b"abce" + tail, 0) == (b"abce", 4)
    assert decode.calls == 2


def test_a_value_that_runs_past_the_end_is_not_remembered() -> None:
    decode = Counting(10)
    memory = Recent(decode)
    assert memory(b"abc", 0)[1] == 10
    assert memory(b"abc", 0)[1] == 10
    assert decode.calls == 2


def test_large_values_and_too_many_values_are_not_kept() -> None:
    large = Counting(recent.ENTRY_BYTES_MAX + 1)
    memory = Recent(large)
    data = bytes(recent.ENTRY_BYTES_MAX + 1)
    memory(data, 0)
    memory(data, 0)
    assert large.calls == 2
    small = Counting(4)
    memory = Recent(small)
    for i in range(3 * recent.ENTRIES_MAX):
        memory(i.to_bytes(4), 0)
    assert len(memory._known) <= recent.ENTRIES_MAX
