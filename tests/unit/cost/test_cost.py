"""Bills beside cases that were computed by hand: 1 GB/s, read once, kept for ten hours, in three zones."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.measured import MEASURED, measured
from benchmarks.plots import RESULTS
from lakestream.cli.cost import app
from lakestream.cost import (
    HOURS,
    PARTS,
    Measured,
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

PRICES = load_prices()
FIGURES = Measured(1.0, 2.0, 5.0, {"none": 0.2, "lz4": 0.5, "zstd": 1.0})
SMALL = Workload(1e9, fanout=1, retention_s=36_000)
MONTH_S = 2_628_000
"""Also the GB of a month at 1 GB/s."""


def test_kafka_by_hand() -> None:
    bill = kafka_bill(SMALL, PRICES, FIGURES, tiered=False)
    # 2/3 of what is produced, two followers, 2/3 of what is consumed.
    assert bill.dollars["network"] == pytest.approx(MONTH_S * 0.02 * (2 / 3 + 2 + 2 / 3))
    # 36 TB three times, 70 % full, on 9.64 volumes of 16 TB; 3 GB/s to disks that are half busy.
    disk_gb = 108_000 / 0.7
    assert bill.dollars["storage"] == pytest.approx(disk_gb * 0.08 + (6000 - disk_gb / 16_000 * 125) * 0.04)
    # 3 GB/s inwards over machines that take 0.469: 6.4, so three in each zone; and three controllers.
    assert bill.dollars["compute"] == pytest.approx(12 * 0.6528 * 730)
    assert bill.dollars["put"] == bill.dollars["get"] == bill.dollars["metadata"] == 0


def test_tiered_kafka_by_hand() -> None:
    day = replace(SMALL, retention_s=86_400)
    bill = kafka_bill(day, PRICES, FIGURES, tiered=True)
    # Half a day on disks, all of it in S3: 50 TB of the first tier and 36.4 of the second.
    disk_gb = 43_200 * 3 / 0.7
    volumes = disk_gb / 16_000
    tier = 50_000 * 0.023 + 36_400 * 0.022
    assert bill.dollars["storage"] == pytest.approx(disk_gb * 0.08 + (6000 - volumes * 125) * 0.04 + tier)
    assert bill.dollars["network"] == kafka_bill(day, PRICES, FIGURES, tiered=False).dollars["network"]
    near = kafka_bill(replace(day, follower_fetch=True), PRICES, FIGURES, tiered=True)
    assert near.dollars["network"] == pytest.approx(MONTH_S * 0.02 * (2 / 3 + 2))


def test_lakestream_by_hand() -> None:
    bill = lakestream_bill(SMALL, PRICES, FIGURES)
    # 119.2 objects of 8 MiB a second; files of 128 MB and 100 tables with six objects every ten seconds.
    objects_s, table_s = 1e9 / (8 << 20), 1 / 0.128 + 60
    assert bill.dollars["put"] == pytest.approx((objects_s + table_s) * MONTH_S * 0.005 / 1000)
    assert bill.dollars["get"] == pytest.approx((objects_s * 3 + table_s) * MONTH_S * 0.0004 / 1000)
    # Ten hours of tables and ten minutes of WAL objects, all in the first tier.
    assert bill.dollars["storage"] == pytest.approx((36_000 + 600) * 0.023)
    assert bill.dollars["network"] == 0
    # 4 GB/s inwards: produced, read in two other zones, read for the table: 8.5, so three in each zone.
    assert bill.dollars["compute"] == pytest.approx(9 * 0.6528 * 730)
    assert bill.dollars["metadata"] == pytest.approx(1.8 * 730)


def test_clients_that_do_not_name_their_zone_pay_for_it() -> None:
    bill = lakestream_bill(replace(SMALL, zone_aware=False), PRICES, FIGURES)
    assert bill.dollars["network"] == pytest.approx(MONTH_S * 0.02 * 2 / 3 * 2)


def test_the_disk_profile_by_hand() -> None:
    bill = lakestream_bill(replace(SMALL, profile="disk"), PRICES, FIGURES)
    # Nine brokers flush 200 times a second, into three zones.
    table = (1 / 0.128 + 60) * MONTH_S * 0.005 / 1000
    assert bill.dollars["put"] == pytest.approx(3 * (1800 * MONTH_S * 0.00113 / 1000 + MONTH_S * 0.0032) + table)
    assert bill.dollars["metadata"] == pytest.approx(2 * 1.8 * 730)


def test_in_one_zone_nothing_crosses() -> None:
    alone = replace(SMALL, zones=1, zone_aware=False)
    assert lakestream_bill(alone, PRICES, FIGURES).dollars["network"] == 0
    assert kafka_bill(alone, PRICES, FIGURES, tiered=False).dollars["network"] == 0


@given(
    st.floats(1e3, 1e11), st.floats(0, 50), st.floats(60, 1e8), st.integers(1, 6), st.sampled_from(["diskless", "disk"])
)
def test_a_bill_grows_with_its_workload(rate: float, fanout: float, kept_s: float, zones: int, profile: str) -> None:
    one = Workload(rate, fanout, kept_s, zones, profile)  # type: ignore[arg-type]
    for more in (replace(one, in_bytes_per_s=2 * rate), replace(one, retention_s=2 * kept_s)):
        assert lakestream_bill(more, PRICES, FIGURES).month >= lakestream_bill(one, PRICES, FIGURES).month
        for tiered in (False, True):
            bill = kafka_bill(more, PRICES, FIGURES, tiered=tiered)
            assert bill.month >= kafka_bill(one, PRICES, FIGURES, tiered=tiered).month
            assert set(bill.dollars) == set(PARTS)
            assert bill.hour * HOURS == pytest.approx(bill.month)


@pytest.mark.parametrize(
    ("text", "expected"), [("5GiB/s", 5 * 2**30), ("800MB/s", 8e8), ("1.5kB/s", 1500), ("7 B/s", 7)]
)
def test_rates(text: str, expected: float) -> None:
    assert parse_rate(text) == expected


def test_what_is_no_rate_or_time_is_refused() -> None:
    assert parse_duration("7d") == 604_800
    assert parse_duration("90m") == 5400
    for text in ("5", "5GB", "-1GB/s", "0GB/s", "GB/s"):
        with pytest.raises(RequestError, match="is no rate"):
            parse_rate(text)
    for text in ("7", "7 years", "0d"):
        with pytest.raises(RequestError, match="is no time"):
            parse_duration(text)


def test_a_table_of_other_prices(tmp_path: Path) -> None:
    other = tmp_path / "prices.toml"
    ours = (Path(__file__).parents[3] / "src" / "lakestream" / "cost" / "prices.toml").read_text()
    other.write_text(ours.replace("put_per_1000 = 0.005", "put_per_1000 = 0.05"))
    assert load_prices(other).s3.put_per_1000 == 0.05
    other.write_text(ours.replace("hour =", "our ="))
    with pytest.raises(RequestError, match=r"prices.toml is no price table"):
        load_prices(other)
    with pytest.raises(RequestError, match="is no price table"):
        load_prices(tmp_path / "nothing.toml")


def test_the_figures_are_those_that_were_measured() -> None:
    assert MEASURED.read_text() == measured(json.loads(RESULTS.read_text()))
    assert load_measured().table_cpu_s_per_gb > 0


def test_the_command_prints_a_bill_and_draws_it(tmp_path: Path) -> None:
    chart = tmp_path / "cost.svg"
    wanted = ["--in", "5GiB/s", "--fanout", "3", "--retention", "7d"]
    found = CliRunner().invoke(app, [*wanted, "--json", "--chart", str(chart)])
    assert found.exit_code == 0, found.output
    tree = json.loads(found.stdout)
    assert tree["saving"]["Apache Kafka"] > 0.95
    ET.fromstring(chart.read_text())
    shown = CliRunner().invoke(app, wanted, env={"COLUMNS": "200"})
    assert "less than Apache Kafka" in shown.output
    assert "Assumed: list prices of" in shown.output
    assert CliRunner().invoke(app, ["--in", "much"]).exit_code == 1


def test_a_picture_names_each_bill_and_part() -> None:
    bills = [lakestream_bill(SMALL, PRICES, FIGURES), kafka_bill(SMALL, PRICES, FIGURES, tiered=False)]
    picture = draw(bills, "a < b")
    assert picture == draw(bills, "a < b")
    texts = [each.text for each in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", *(bill.name for bill in bills), *PARTS} <= set(texts)
