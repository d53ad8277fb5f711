"""What a user's type checker must refuse: every marked line is an error, and no other. Never
run.
"""

from __future__ import annotations

from dalsegno.client import BlockingContext, Client, Context, ContextSchema, Flow, Worker

flow = Flow("f", retries=3)  # E
flow.step(reeds=["a"])  # E
flow.step(timeout=2.5)  # E
flow.step(risk="high")  # E
flow.step(needs=[3])  # E


@flow.step(reads=[], writes=[])  # E
async def returns_a_number(ctx: Context) -> int:
    return 1


@flow.step(reads=[], writes=[])  # E
def plain_with_the_async_context(ctx: Context) -> None:
    return None


@flow.step(reads=[], writes=[])
async def body(ctx: Context) -> None:
    wrong: str = await ctx.effect("count", len, [1])  # E
    ctx["field"] = 1  # E
    ctx.effect("forgotten", len, [1]).upper()  # E
    print(wrong)


@flow.step(reads=[], writes=[])
def plain(ctx: BlockingContext) -> None:
    wrong: str = ctx.effect("count", len, [1])  # E
    print(wrong)


@flow.compensation(reads=[], writes=[])
async def takes_back(ctx: Context) -> None:
    await ctx.take_back("pay", len, [1])  # E
    for effect in ctx.undo:
        wrong: int = await ctx.take_back(effect, len, [1])  # E
        print(wrong, effect.amount)  # E


client = Client(bootstrap_servers="localhost:9092")
client.start("flow", {})  # E
client.wait("run", timeout=1.5)  # E
client.query(7)  # E
client.runs(states="running", flow=7)  # E
print(client.query("run").saga.cause)  # E
client.query("run").questions.append("one")  # E
client.query("run").run_version = 2  # E
Flow("f", fields={"a": "txt"})  # E
client.report("run").completed("step", ["not", "a", "mapping"])  # E
Worker(flow)  # E
flow.on_stop(7)  # E
flow.on_stop(lambda name: None)  # E
Worker([flow], concurrency="many")  # E


schema = ContextSchema("s", dict, version="2")  # E
ContextSchema("s", "Loan")  # E
schema.upcast("field")  # E
schema.upcast("field", from_version=1)(3)  # E
Flow("f", context_schema="s")  # E
Flow("f", context_schema_version=2)  # E
