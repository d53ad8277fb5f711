"""Posts of packages, against a real HTTP receiver that checks them as a receiver would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web
from standardwebhooks import Webhook as Receiver
from standardwebhooks import WebhookVerificationError
from tests.unit.agents.webhooks.packages import package

from dalsegno.schemas.control import Policy, Webhook
from dalsegno.schemas.outputs import EffectStatus, JournalEntry
from dalsegno.schemas.webhook import secret_of, signature
from dalsegno.streams.agents.webhooks.message import headers_of, message_of
from dalsegno.streams.agents.webhooks.posting import Attempt, Posted, new_session, post
from dalsegno.streams.core.controls import policy_fault

SECRET_TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRET = secret_of(SECRET_TEXT)


class Desk:
    """A receiver whose next answer can be chosen."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.hangs = False
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(status=self.status, headers=self.headers, text="x" * 100_000)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    application = web.Application()
    application.add_routes([web.post("/in", made.take), web.route("*", "/other", made.take)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield made
    await runner.cleanup()


async def posted(desk: Desk, timeout_s: float = 5.0, url: str = "") -> Attempt:
    message = message_of(package())
    hook = Webhook(name="desk", url=url or desk.url, key_id="k1")
    headers = headers_of(hook, SECRET, message, int(time.time()))
    async with new_session() as session:
        return await post(session, hook.url, message.body, headers, timeout_s)


def test_the_signature_is_the_one_of_the_published_example() -> None:
    """Source: the test vector of the reference libraries of Standard Webhooks."""
    found = signature(
        SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
    )
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_reference_library_takes_what_we_sign_and_nothing_else() -> None:
    message = message_of(package())
    hook = Webhook(name="desk", url="https://desk/in", key_id="k1")
    now_s = int(time.time())
    headers = headers_of(hook, SECRET, message, now_s)
    read = Receiver(SECRET_TEXT).verify(message.body, headers)
    assert read["data"]["escalation_id"] == "r#1"
    for wrong in (
        {**headers, "webhook-id": "other"},
        {**headers, "webhook-timestamp": str(now_s + 1)},
        headers_of(hook, b"0" * 24, message, now_s),
        headers_of(hook, SECRET, message, now_s - 3_600),
    ):
        with pytest.raises(WebhookVerificationError):
            Receiver(SECRET_TEXT).verify(message.body, wrong)
    with pytest.raises(WebhookVerificationError):
        Receiver(SECRET_TEXT).verify(message.body.replace(b"r#1", b"r#2"), headers)


def test_a_message_has_the_package_in_order_and_its_text_and_no_results_of_effects() -> None:
    done = EffectStatus.CONFIRMED
    entry = JournalEntry(
        effect="pay", occurrence=0, key="k", status=done, epoch=1, result=b"card 4111"
    )
    made = package(effects=(entry,))
    message = message_of(made)
    read = json.loads(message.body)
    assert read["type"] == "escalation.asked"
    assert "effects" not in read["data"]
    assert b"4111" not in message.body
    assert read["data"]["package_digest"] == made.package_digest.hex()
    assert read["data"]["options"][0]["decision"] == "retry"
    assert read["data"]["text"].startswith("r#1\nAsked\n  How does the run go on")
    assert list(read["data"])[:3] == ["question", "asked", "answer_by_ms"]
    assert set(read["data"]) - {"text"} == set(made.__struct_fields__) - {"effects"}
    again = msgspec.structs.replace(made, reminder=2)
    assert json.loads(message_of(again).body)["type"] == "escalation.reminded"
    assert message_of(again).id != message.id
    assert message_of(made) == message


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Posted.DELIVERED),
        (204, Posted.DELIVERED),
        (302, Posted.REFUSED),
        (400, Posted.REFUSED),
        (404, Posted.REFUSED),
        (408, Posted.TROUBLE),
        (410, Posted.GONE),
        (429, Posted.TROUBLE),
        (500, Posted.TROUBLE),
        (503, Posted.TROUBLE),
    ],
)
async def test_the_status_says_what_comes_next(desk: Desk, status: int, expected: Posted) -> None:
    desk.status = status
    desk.headers = {"location": "/other"} if status == 302 else {}
    assert (await posted(desk)).posted is expected
    assert len(desk.got) == 1, "no redirect is followed"


async def test_retry_after_is_heard_within_a_bound(desk: Desk) -> None:
    desk.status = 503
    for said, heard in (("7", 7.0), ("999999", 3_600.0), ("-1", 0.0), ("Wed, 21 Oct", 0.0)):
        desk.headers = {"retry-after": said}
        assert (await posted(desk)).retry_after_s == heard


async def test_who_hangs_refuses_or_is_no_address_is_in_trouble(desk: Desk) -> None:
    desk.hangs = True
    attempt = await posted(desk, timeout_s=0.2)
    assert (attempt.posted, attempt.detail) == (Posted.TROUBLE, "no answer within 0.2 s")
    assert (await posted(desk, url="http://127.0.0.1:1/in")).posted is Posted.TROUBLE
    assert (await posted(desk, url="http://nowhere.invalid/in")).posted is Posted.TROUBLE


@pytest.mark.parametrize(
    "text", ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?", "whsec_c2hvcnQ=", "whsec_"]
)
def test_what_is_no_secret_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"webhook secret|base64") as refused:
        secret_of(text)
    assert "c2hvcnQ" not in str(refused.value)


GOOD = Webhook(name="desk", url="https://desk.example/in?x=1", key_id="k1")


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "ftp://desk/in"},
        {"url": "https:///in"},
        {"url": "https://user:word@desk/in"},
        {"url": "https://desk/in#part"},
        {"url": "https://desk:0/in"},
        {"url": "https://desk:99999/in"},
        {"url": "https://desk/\nin"},
        {"url": "https://desk/" + "x" * 2_048},
        {"url": "file:///etc/passwd"},
        {"name": ""},
        {"name": "two words"},
        {"key_id": ""},
        {"timeout_ms": 0},
        {"timeout_ms": 60_001},
        {"retry_initial_ms": 0},
        {"retry_max_ms": 999},
        {"attempts_max": 0},
    ],
)
def test_a_policy_lists_only_targets_that_can_be_posted_to(changed: dict[str, object]) -> None:
    assert policy_fault(Policy(webhooks=(GOOD,))) == ""
    wrong = msgspec.structs.replace(GOOD, **changed)
    assert policy_fault(Policy(webhooks=(wrong,))).startswith("webhooks: ")
    assert policy_fault(Policy(webhooks=(GOOD, GOOD))) == "webhooks: two have one name"
