"""`lakestream cost`: the bill of a workload, beside that of Apache Kafka."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lakestream.cli.console import emit_json, fail, out, show_table
from lakestream.cli.options import Json
from lakestream.cost import (
    PARTS,
    Bill,
    Workload,
    draw,
    kafka_bill,
    lakestream_bill,
    load_measured,
    load_prices,
    parse_duration,
    parse_rate,
)
from lakestream.errors import RequestError

app = typer.Typer(help="Estimate the bill of a workload, beside that of Apache Kafka.")


class Profile(StrEnum):
    DISKLESS = "diskless"
    DISK = "disk"


class Codec(StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@app.command()
def cost(
    rate: Annotated[str, typer.Option("--in", help="What producers send, such as 5GiB/s.")] = "1GiB/s",
    fanout: Annotated[float, typer.Option(help="How often each byte is consumed.", min=0)] = 3,
    retention: Annotated[str, typer.Option(help="How long records are kept, such as 7d.")] = "7d",
    profile: Annotated[Profile, typer.Option(help="Where WAL objects go.")] = Profile.DISKLESS,
    zones: Annotated[int, typer.Option(help="Availability zones.", min=1, max=6)] = 3,
    codec: Annotated[Codec, typer.Option(help="How producers compress.")] = Codec.ZSTD,
    zone_aware: Annotated[bool, typer.Option(help="Our clients use brokers of their own zone.")] = True,
    follower_fetch: Annotated[bool, typer.Option(help="Kafka's consumers fetch from a replica in their zone.")] = False,
    topics: Annotated[int, typer.Option(help="Topics, each with a table.", min=1)] = 100,
    prices: Annotated[Path | None, typer.Option(help="A price table (TOML) instead of ours.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the bills into this SVG file.")] = None,
    json: Json = False,
) -> None:
    """Print what a workload costs a month and an hour, part by part, beside Apache Kafka over the same zones and Kafka
    with tiered storage. A model with list prices: it says what it assumes."""
    try:
        table = load_prices(prices)
        workload = Workload(
            parse_rate(rate),
            fanout,
            parse_duration(retention),
            zones,
            profile.value,
            codec.value,
            zone_aware,
            follower_fetch,
            topics,
        )
    except RequestError as error:
        fail(str(error))
    measured = load_measured()
    ours = lakestream_bill(workload, table, measured)
    peers = [kafka_bill(workload, table, measured, tiered=tiered) for tiered in (False, True)]
    bills = [ours, *peers]
    if chart is not None:
        chart.write_text(draw(bills, f"{rate} in, read {fanout:g} times, kept {retention}, {zones} zones"))
    if json:
        emit_json(
            {
                "workload": asdict(workload),
                "prices": {"date": table.date, "source": table.source},
                "bills": [asdict(bill) | {"month": bill.month, "hour": bill.hour} for bill in bills],
                "saving": {peer.name: ours.saving_over(peer) for peer in peers},
            }
        )
        return
    show_table(["$ a month", *(bill.name for bill in bills)], _rows(bills))
    for bill in bills:
        out.print(f"{bill.name}: {'; '.join(bill.notes)}.", markup=False, soft_wrap=True)
    for line in _assumptions(workload, ours, peers, table.date):
        out.print(line, markup=False, soft_wrap=True)


def _rows(bills: list[Bill]) -> list[list[str]]:
    rows = [[part, *(f"{bill.dollars[part]:,.0f}" for bill in bills)] for part in PARTS]
    rows.append(["a month", *(f"{bill.month:,.0f}" for bill in bills)])
    rows.append(["an hour", *(f"{bill.hour:,.2f}" for bill in bills)])
    rows.append(["less than Kafka", *(f"{bill.saving_over(bills[1]):.0%}" for bill in bills)])
    return rows


def _assumptions(workload: Workload, ours: Bill, peers: list[Bill], date: str) -> list[str]:
    savings = " and ".join(f"{ours.saving_over(peer):.1%} less than {peer.name}" for peer in peers)
    allowed = 0.05 * peers[0].month
    return [
        f"This is {savings}.",
        f"For 95 % less than Kafka everything together may cost {allowed:,.0f} a month; storage and compute here are"
        f" {ours.dollars['storage'] + ours.dollars['compute']:,.0f}. It takes Kafka's clients across zones"
        " (no fetching from followers), its log on disks, and our clients in their own zone.",
        f"Assumed: list prices of {date} without discounts; machines half busy; traffic between machines and S3 is"
        f" free; {'clients name their zone' if workload.zone_aware else 'clients do not name their zone'};"
        " CPU per GB as benchmarked on other cores than these, that of fetching assumed. See docs/COST.md.",
    ]
