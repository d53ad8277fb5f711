"""Payloads as they are stored, written by many threads at once."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from dalsegno.storage.frame import decompress, store

THREADS = 4
ROUNDS = 40


def test_threads_that_store_at_once_do_not_spoil_each_others_frames() -> None:
    begin = threading.Barrier(THREADS)
    dictionary = bytes(random.Random(0).choices(b"abcdef", k=4_000))

    def work(seed: int) -> int:
        rng, wrong = random.Random(seed), 0
        begin.wait()
        for _ in range(ROUNDS):
            payload = bytes(rng.choices(b"abcdefgh", k=rng.randrange(1_000, 60_000)))
            frame = store(payload, dictionary)
            told = dictionary if frame.by_dictionary else b""
            wrong += decompress(frame.data, len(payload), told) != payload
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [0] * THREADS
