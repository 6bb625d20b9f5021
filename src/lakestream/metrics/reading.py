"""Numbers that others keep anyway, read when somebody asks for them: counting them costs nothing more."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Read = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Kept:
    family: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    help: str
    label: str
    reads: Mapping[str, Read]


class ReadMetrics(Collector):
    """Called from the thread that answers: the functions must be safe there, as reading a number is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._kept: list[_Kept] = []
        registry.register(self)

    def counter(self, name: str, help: str, read: Read) -> None:
        self._kept.append(_Kept(CounterMetricFamily, name, help, "", {"": read}))

    def counters(self, name: str, help: str, label: str, reads: Mapping[str, Read]) -> None:
        """One for each value of the label."""
        self._kept.append(_Kept(CounterMetricFamily, name, help, label, reads))

    def gauge(self, name: str, help: str, read: Read) -> None:
        self._kept.append(_Kept(GaugeMetricFamily, name, help, "", {"": read}))

    def gauges(self, name: str, help: str, label: str, reads: Mapping[str, Read]) -> None:
        self._kept.append(_Kept(GaugeMetricFamily, name, help, label, reads))

    def collect(self) -> Iterable[Metric]:
        for kept in self._kept:
            family = kept.family(kept.name, kept.help, labels=[kept.label] if kept.label else [])
            for value, read in kept.reads.items():
                family.add_metric([value] if kept.label else [], read())
            yield family
