"""`lakestream demo-agent`: orders stream in, and an agent checks each against its customer's history, with evidence.

The agent is any client of MCP with a model that chooses the tools. Here the model is a script that chooses as a careful
clerk would, so the demo needs no account and always ends the same way: follow new orders, read the customer's history,
compare, decide, cite; and have every citation replayed before the decision counts.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from confluent_kafka import Producer
from mcp import Client

from lakestream.cli.clients.demo import framed, order, typed_topic
from lakestream.cli.console import fail, out
from lakestream.cli.options import DEFAULT_BOOTSTRAP, REQUEST_TIMEOUT_S, Bootstrap

app = typer.Typer(add_completion=False)

CUSTOMERS: Final = 40
UNUSUAL: Final = 10.0
"""So many times what a customer usually spends is looked at by somebody."""
_WAIT_S: Final = 20.0
_SHOWN: Final = 12
"""Digits of a digest that are shown."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`evidence`: citations of what it rests on, each replayed."""

    verdict: str
    reason: str
    evidence: list[dict[str, Any]]


class Clerk:
    """The script in the model's place: what it is told is an order, what it says are calls of tools and a verdict."""

    def __init__(self, agent: Client, stream: str) -> None:
        self._agent = agent
        self._stream = stream

    async def decide(self, record: dict[str, Any]) -> Judgement:
        """Of an order as `changes` tells it."""
        customer, place = record["key"], (record["partition"], record["offset"])
        history = await call(self._agent, "history", stream=self._stream, key=customer, limit=20)
        before = [each for each in history["records"] if (each["partition"], each["offset"]) != place]
        evidence = history["citations"]
        if not before:
            return Judgement("hold", "no order of this customer is known", evidence)
        quoted = customer.replace("'", "''")
        sql = (
            f"SELECT median(amount) AS amount, count(*) AS orders FROM \"{self._stream}\" WHERE customer = '{quoted}' "
            f"AND NOT (_stream_partition = {place[0]} AND _offset = {place[1]})"
        )
        usual = await call(self._agent, "query", sql=sql)
        evidence = [*evidence, usual["citation"]]
        [known] = usual["rows"]
        ratio = record["value"]["amount"] / known["amount"]
        told = f"{known['orders']} orders before, usually {known['amount']:.2f}"
        if ratio >= UNUSUAL:
            return Judgement("hold", f"{told}: this is {ratio:.0f} times that", evidence)
        return Judgement("approve", told, evidence)

    async def verify(self, decision: Judgement) -> bool:
        """Whether each citation still shows what it cites."""
        for citation in decision.evidence:
            shown = await call(self._agent, "replay", citation=citation)
            if shown["citation"]["digest"] != citation["digest"]:
                return False
        return True


@app.command()
def demo_agent(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where the orders are.")] = "orders",
    history: Annotated[int, typer.Option(min=1, help="Orders that are written before the agent comes.")] = 2000,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="New orders that it checks.")] = 5,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    door: Annotated[
        str, typer.Option("--door", metavar="URL", envvar="LAKESTREAM_DOOR", help="Where the HTTP door is.")
    ] = "http://127.0.0.1:8181",
) -> None:
    """Let an agent check orders as they come in: over MCP, against each customer's history, with evidence.

    The fourth order is a large one.
    """
    base = door.rstrip("/")
    orders = Orders(topic, bootstrap, typed_topic(topic, bootstrap, f"{base}/registry"))
    orders.write(history)
    said = f"{history:,} orders of {CUSTOMERS} customers are in. An agent follows {topic} at {base}/mcp."
    out.print(said, soft_wrap=True, highlight=False)
    asyncio.run(_run(orders, f"{base}/mcp", topic, count))


class Orders:
    """A shop's."""

    def __init__(self, topic: str, bootstrap: str, schema_id: int) -> None:
        self._source = random.Random(7)
        self._topic = topic
        self._schema_id = schema_id
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def write(self, count: int, times: int = 1) -> None:
        """Acknowledged when it returns. `times`: how much more than usual is ordered."""
        for _ in range(count):
            made = order(self._source)
            made["customer"] = f"c{self._source.randrange(CUSTOMERS):04d}"
            made |= {"quantity": made["quantity"] * times, "amount": round(made["amount"] * times, 2)}
            self._producer.produce(self._topic, framed(self._schema_id, made), key=made["customer"])
            self._producer.poll(0)
        if self._producer.flush(REQUEST_TIMEOUT_S):
            fail("the orders were not taken: is a broker running?")


async def _run(orders: Orders, url: str, topic: str, count: int) -> None:
    async with Client(url) as agent:
        clerk = Clerk(agent, topic)
        # The first question starts the process that answers it.
        await call(agent, "latest", stream=topic, key="nobody")
        cursor = (await call(agent, "changes", stream=topic))["cursor"]
        for number in range(count):
            await asyncio.to_thread(orders.write, 1, 100 if number == 3 else 1)
            acked_s = time.perf_counter()
            told = await call(agent, "changes", stream=topic, cursor=cursor, wait_seconds=_WAIT_S)
            cursor = told["cursor"]
            for record in told["records"]:
                decision = await clerk.decide(record)
                took_ms = (time.perf_counter() - acked_s) * 1000
                is_shown = await clerk.verify(decision)
                _show(record, decision, is_shown=is_shown, took_ms=took_ms)


def _show(record: dict[str, Any], decision: Judgement, *, is_shown: bool, took_ms: float) -> None:
    value = record["value"]
    digests = ", ".join(each["digest"][: len("sha256:") + _SHOWN] for each in decision.evidence)
    colour = "green" if decision.verdict == "approve" else "red"
    out.print(
        f"[bold {colour}]{decision.verdict}[/] {record['partition']}:{record['offset']} {value['customer']} "
        f"{value['quantity']} × {value['item']}, {value['amount']:.2f}: {decision.reason} "
        f"[dim]({took_ms:.0f} ms after its ack; {digests}, {'replayed' if is_shown else 'NOT the same any more'})[/]",
        soft_wrap=True,
        highlight=False,
    )


async def call(agent: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The typed answer; ends the command with what the tool says if it refuses."""
    answer = await agent.call_tool(tool, arguments)
    if answer.is_error or answer.structured_content is None:
        fail(f"{tool}: {getattr(answer.content[0], 'text', 'no answer')}")
    found: dict[str, Any] = answer.structured_content
    return found
