"""What Prometheus is told: requests as they happen, the store and its blobs when it asks.

With several processes, prometheus-client keeps the counters in files of a directory that `PROMETHEUS_MULTIPROC_DIR`
names (set by `inkgrove serve`), so that whichever process is asked tells the sum.
"""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from inkgrove.node.node import Node
from inkgrove.node.state import read_state

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one application."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "inkgrove_http_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "inkgrove_http_request_seconds",
            "Time until the answer began.",
            ["method", "route"],
            registry=self._registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.connections = Gauge(
            "inkgrove_http_connections", "Open connections.", registry=self._registry, multiprocess_mode="livesum"
        )
        self.ended = Counter(
            "inkgrove_http_connections_ended",
            "Connections that were dropped while idle, or refused, because there were too many.",
            ["what"],
            registry=self._registry,
        )
        self._kept: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the pattern of its address, so that there are few of them."""
        key = (method if method in _METHODS else "other", route, status)
        kept = self._kept.get(key)
        if kept is None:  # to find them by their labels takes longer than to count
            kept = self._kept[key] = (self.requests.labels(key[0], route, str(status)), self.seconds.labels(*key[:2]))
        count, times = kept
        count.inc()
        times.observe(seconds)

    def render(self) -> bytes:
        """Everything as Prometheus reads it."""
        registry = self._registry
        if os.environ.get(DIRECTORY_VARIABLE):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        asked = CollectorRegistry()
        asked.register(_StateCollector(self._node))
        return generate_latest(registry) + generate_latest(asked)


class _StateCollector(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        state = read_state(self._node)
        for name, about, value in (
            ("entries", "Entries held.", state.entries),
            ("store_position", "The newest ingest position.", state.position),
            ("view_position", "The ingest position that the views have reached.", state.view_position),
            ("view_lag", "Positions that are not in the views yet.", state.lag),
            ("blobs", "Blobs held.", state.blobs),
            ("blob_bytes", "Bytes of the blobs held.", state.blob_bytes),
        ):
            yield GaugeMetricFamily(f"inkgrove_{name}", about, value)
