"""The partitioner against vectors made with Kafka's own Java client."""

import pytest

from dalsegno.schemas.partitioner import murmur2, partition_for

COUNTS = (1, 3, 8, 12, 64)
# Printed by org.apache.kafka.common.utils.Utils.murmur2 and toPositive of kafka-clients 4.1.1:
# run id, hash (signed), partition among each of COUNTS.
VECTORS = [
    ("", 275646681, 0, 0, 1, 9, 25),
    ("a", -1563381124, 0, 1, 4, 4, 60),
    ("ab", 316155434, 0, 2, 2, 2, 42),
    ("abc", 479470107, 0, 0, 3, 3, 27),
    ("abcd", -1323649548, 0, 2, 4, 8, 52),
    ("abcde", 461995741, 0, 1, 5, 1, 29),
    ("21", -973932308, 0, 0, 4, 0, 44),
    ("foobar", -790332482, 0, 0, 6, 6, 62),
    ("run-1", 637533037, 0, 1, 5, 1, 45),
    ("run-2", 1268900777, 0, 2, 1, 5, 41),
    ("run-000042", 2134052224, 0, 1, 0, 4, 0),
    ("3f2b8c1e-7d4a-4f6b-9a0e-5c1d2e3f4a5b", 1930645018, 0, 1, 2, 10, 26),
    ("application/2024/000117", -41993856, 0, 2, 0, 8, 0),
    ("prêt-7", 180086944, 0, 1, 0, 4, 32),
    ("リスク評価-1", -186636300, 0, 2, 4, 8, 52),
    ("run-😀-9", -1993223770, 0, 1, 6, 10, 38),
    ("run-𝄋-9", 1651192124, 0, 2, 4, 8, 60),
    ("a-little-bit-long-string", -985981536, 0, 2, 0, 8, 32),
    ("a-little-bit-longer-string", -1486304829, 0, 2, 3, 11, 3),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 0, 2, 5, 5, 13),
    ("x" * 128, -645564713, 0, 0, 7, 3, 23),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector[0][:20] or "empty")
def test_agrees_with_kafkas_java_client(vector: tuple[str, int, int, int, int, int, int]) -> None:
    run_id, signed, *partitions = vector
    assert murmur2(run_id.encode()) == signed & 0xFFFFFFFF
    assert [partition_for(run_id, count) for count in COUNTS] == partitions
