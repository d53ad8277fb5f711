"""A decision counts only under the signature of a key in force, by its holder."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import DecisionKey, DecisionMade, DecisionType, Policy
from dalsegno.schemas.errors import KeyMissing
from dalsegno.schemas.intake import Intake, Refusal
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.signing import signature_header, signed_message
from dalsegno.streams.core.controls import policy_fault
from dalsegno.streams.engine.signatures import verify_ed25519

TOPIC = "dalsegno.events"
RING = Keyring({"k1": b"1" * 32})
ANA = Ed25519PrivateKey.from_private_bytes(b"a" * 32)
BEN = Ed25519PrivateKey.from_private_bytes(b"b" * 32)
KEYS = (
    DecisionKey(key_id="ana-1", public_key=ANA.public_key().public_bytes_raw(), holder="ana"),
    DecisionKey(key_id="ben-1", public_key=BEN.public_key().public_bytes_raw(), holder="ben"),
)
INTAKE = Intake(TOPIC, 8, RING, verify_ed25519)
DECISION = DecisionMade(
    run_id="run-1", decision_id="d", escalation_id="run-1#1", decision=DecisionType.RETRY,
    decided_by="ana", reason="why not", package_digest=b"1" * 32,
)  # fmt: skip
PLACE = partition_for("run-1", 8)


def read(
    event: DecisionMade = DECISION,
    *,
    by: str = "ana-1",
    key: Ed25519PrivateKey = ANA,
    topic: str = TOPIC,
    keys: tuple[DecisionKey, ...] = KEYS,
    extra: list[tuple[str, bytes]] | None = None,
    value: bytes = b"",
) -> object:
    signed = codec.encode(event)
    signature = signature_header(by, key.sign(signed_message(topic, signed)))
    value = value or signed
    mac = RING.sign("k1", TOPIC, PLACE, value)
    found = [(headers.MAC, mac), (headers.SIGNATURE, signature), *(extra or [])]
    return INTAKE.read(PLACE, b"run-1", value, found, decision_keys=keys)


def reason(result: object) -> str:
    assert isinstance(result, Refusal)
    return result.reason


def test_a_signed_decision_is_read() -> None:
    assert read() == DECISION


def test_a_decision_without_a_signature_is_refused() -> None:
    value = codec.encode(DECISION)
    mac = [(headers.MAC, RING.sign("k1", TOPIC, PLACE, value))]
    assert reason(INTAKE.read(PLACE, b"run-1", value, mac, decision_keys=KEYS)) == "no_signature"
    assert reason(read(extra=[(headers.SIGNATURE, b"two")])) == "no_signature"


def test_a_signature_over_anything_else_is_refused() -> None:
    other = msgspec.structs.replace(DECISION, decision=DecisionType.CANCEL)
    assert reason(read(value=codec.encode(other))) == "bad_signature"
    assert reason(read(key=BEN)) == "bad_signature"
    assert reason(read(topic="other.events")) == "bad_signature"


def test_who_is_no_longer_listed_decides_nothing() -> None:
    """R041: rights were not checked again when the answer came."""
    assert reason(read(keys=KEYS[1:])) == "unknown_decision_key"
    assert reason(read(keys=())) == "unknown_decision_key"


def test_nobody_decides_in_anothers_name() -> None:
    assert reason(read(by="ben-1", key=BEN)) == "wrong_signer"


@pytest.mark.parametrize(
    "header", [b"", b"x", b":" + b"0" * 64, b"ana-1" + b"0" * 64, b"\xff:" + b"0" * 64]
)
def test_headers_that_are_no_signature_are_refused(header: bytes) -> None:
    value = codec.encode(DECISION)
    found = [
        (headers.MAC, RING.sign("k1", TOPIC, PLACE, value)),
        (headers.SIGNATURE, header),
    ]
    assert reason(INTAKE.read(PLACE, b"run-1", value, found, decision_keys=KEYS)) == "bad_signature"


def test_a_process_that_cannot_check_stops_instead_of_deciding_otherwise_than_others() -> None:
    value = codec.encode(DECISION)
    signature = signature_header("ana-1", ANA.sign(signed_message(TOPIC, value)))
    found = [
        (headers.MAC, RING.sign("k1", TOPIC, PLACE, value)),
        (headers.SIGNATURE, signature),
    ]
    with pytest.raises(KeyMissing):
        Intake(TOPIC, 8, RING).read(PLACE, b"run-1", value, found, decision_keys=KEYS)


def test_a_policy_whose_keys_cannot_be_used_is_refused() -> None:
    good = Policy(decision_keys=KEYS)
    assert policy_fault(good) == ""
    for changed in ({"key_id": ""}, {"key_id": "a:b"}, {"public_key": b"1"}, {"holder": ""}):
        key = msgspec.structs.replace(KEYS[0], **changed)
        assert policy_fault(Policy(decision_keys=(key,)))
    assert policy_fault(Policy(decision_keys=(KEYS[0], KEYS[0])))
