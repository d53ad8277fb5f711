"""Health checks of dependencies, against real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from aiohttp import web
from tests.unit.agents import answers

from dalsegno.schemas.control import Dependency, HealthCheck
from dalsegno.streams.agents.health import check

THIS = "tests.unit.agents.answers"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def well(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ill(_: web.Request) -> web.Response:
        return web.Response(status=503)

    async def asleep(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("never")

    application = web.Application()
    application.add_routes(
        [web.get("/well", well), web.get("/ill", ill), web.get("/asleep", asleep)]
    )
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


def asks(kind: HealthCheck, target: str, timeout_ms: int = 2_000) -> Dependency:
    return Dependency(name="pay", check=kind, target=target, timeout_ms=timeout_ms)


async def test_http_is_well_below_400(port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    assert await check(asks(HealthCheck.HTTP, f"{base}/well"), frozenset()) == (True, "passed")
    healthy, detail = await check(asks(HealthCheck.HTTP, f"{base}/ill"), frozenset())
    assert (healthy, "503" in detail) == (False, True)


async def test_who_does_not_answer_in_time_is_not_well(port: int) -> None:
    asked = asks(HealthCheck.HTTP, f"http://127.0.0.1:{port}/asleep", 50)
    assert await check(asked, frozenset()) == (False, "no answer within 50 ms")


async def test_tcp_is_well_when_it_can_be_reached(port: int) -> None:
    assert (await check(asks(HealthCheck.TCP, f"127.0.0.1:{port}"), frozenset()))[0]
    assert not (await check(asks(HealthCheck.TCP, "127.0.0.1:1"), frozenset()))[0]
    assert not (await check(asks(HealthCheck.TCP, "nonsense"), frozenset()))[0]


@pytest.mark.parametrize(
    ("name", "healthy"), [("yes", True), ("no", False), ("later", True), ("raises", False)]
)
async def test_a_function_of_the_users_says_so(name: str, *, healthy: bool) -> None:
    target = f"{THIS}:{name}"
    asked = asks(HealthCheck.FUNCTION, target)
    assert (await check(asked, frozenset({target})))[0] is healthy


async def test_a_function_that_the_settings_do_not_list_is_never_called() -> None:
    healthy, detail = await check(asks(HealthCheck.FUNCTION, f"{THIS}:yes"), frozenset())
    assert not healthy
    assert "DALSEGNO_HEALTH_FUNCTIONS" in detail


@pytest.mark.parametrize(("status", "healthy"), [(1, True), (2, False), (None, False)])
async def test_grpc_asks_the_standard_health_service(status: int | None, *, healthy: bool) -> None:
    grpc = pytest.importorskip("grpc")

    def answer(request: bytes, context: object) -> bytes:
        assert request == b"\x0a\x03pay"
        return b"\x08" + bytes([status or 0])

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
        def service(self, details: object) -> object:
            if status is None:
                return None
            assert details.method == "/grpc.health.v1.Health/Check"  # type: ignore[attr-defined]
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    found = await check(asks(HealthCheck.GRPC, f"127.0.0.1:{port}/pay"), frozenset())
    await server.stop(None)
    assert found[0] is healthy


def test_a_declaration_is_plain_data() -> None:
    made = asks(HealthCheck.TCP, "x:1")
    assert msgspec.convert(msgspec.to_builtins(made), Dependency) == made


async def test_a_function_that_hangs_takes_no_thread_from_the_engine() -> None:
    """Restores and stops need the loop's own threads, of which there are a few."""
    target = f"{THIS}:hangs"
    asked = asks(HealthCheck.FUNCTION, target, 50)
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            assert await check(asked, frozenset({target})) == (False, "no answer within 50 ms")
            async with asyncio.timeout(20):
                await asyncio.to_thread(lambda: None)
            healthy, detail = await check(asked, frozenset({target}))
            assert (healthy, "has not returned yet" in detail) == (False, True)
        finally:
            answers.may_return.set()


async def test_fault_points_that_name_the_same_function_do_not_fail_for_each_other() -> None:
    """They are asked at the same time, each time: the second would never be well."""
    target = f"{THIS}:meets"
    asked = asks(HealthCheck.FUNCTION, target, 60_000)
    found = await asyncio.gather(*(check(asked, frozenset({target}), each) for each in "ab"))
    assert found == [(True, "passed")] * 2
