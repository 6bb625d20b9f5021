"""What a cluster costs a month, as a model: a workload, list prices and measured figures give bills to compare."""

from lakestream.cost.chart import draw
from lakestream.cost.kafka import kafka_bill
from lakestream.cost.lake import lakestream_bill
from lakestream.cost.model import HOURS, PARTS, Bill, Workload
from lakestream.cost.tables import Measured, Prices, load_measured, load_prices
from lakestream.cost.units import parse_duration, parse_rate

__all__ = [
    "HOURS",
    "PARTS",
    "Bill",
    "Measured",
    "Prices",
    "Workload",
    "draw",
    "kafka_bill",
    "lakestream_bill",
    "load_measured",
    "load_prices",
    "parse_duration",
    "parse_rate",
]
