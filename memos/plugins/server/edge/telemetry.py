"""Reports requests: figures for Prometheus, spans for OpenTelemetry, a line of the access log.

Never what was asked or answered. Spans leave the process only where OTEL_EXPORTER_OTLP_ENDPOINT says where to.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import Scope

from memos.cost import Cost
from memos.plugins.server.edge.lanes import Lanes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

access = logging.getLogger("memos.access")
_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass
class RequestOutcome:
    """What is known of a request once it is over. status 499: the client left before it was answered."""

    status: int = 499
    key: str = ""


class Telemetry:
    """Figures, spans and the access log of one server."""

    def __init__(self, lanes: Lanes) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("memos_requests", "requests answered", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "memos_request_seconds", "until the end", ["route"], registry=registry, buckets=_BUCKETS_S
        )
        self._running = Gauge("memos_requests_going", "requests that go on", registry=registry)
        self._model_calls = Counter("memos_model_calls", "questions put to the model for requests", registry=registry)
        self._model_tokens = Counter("memos_model_tokens", "tokens that went through it for them", registry=registry)
        waiting = Gauge("memos_waiting", "calls that wait", ["lane"], registry=registry)
        for lane in lanes:
            waiting.labels(lane.name).set_function(lambda lane=lane: lane.waiting)  # type: ignore[misc]
        self._provider = _provider()
        self._tracer = (self._provider or trace.get_tracer_provider()).get_tracer("memos")

    @contextmanager
    def request(self, scope: Scope, headers: Mapping[bytes, str]) -> Iterator[RequestOutcome]:
        """One request, reported as it ends."""
        outcome, began = RequestOutcome(), time.perf_counter()
        parent = propagate.extract({name.decode("latin-1"): value for name, value in headers.items()})
        with self._tracer.start_as_current_span(
            scope["method"], parent, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                with self._running.track_inprogress():
                    yield outcome
            finally:
                self._report(scope, outcome, time.perf_counter() - began, span)

    def _report(self, scope: Scope, outcome: RequestOutcome, seconds: float, span: Span) -> None:
        method, route = scope["method"], _route(scope)
        self._requests.labels(route, str(outcome.status)).inc()
        self._seconds.labels(route).observe(seconds)
        if span.is_recording():
            span.update_name(f"{method} {route}")
            http = {"request.method": method, "route": route, "response.status_code": outcome.status}
            span.set_attributes({"memos.key": outcome.key} | {f"http.{name}": value for name, value in http.items()})
        if access.isEnabledFor(logging.INFO):
            line = {"method": method, "route": route, "status": outcome.status, "key": outcome.key}
            access.info(json.dumps(line | {"ms": round(seconds * 1e3, 1)}))

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """One call of memos for a request. Of an error its name alone is reported: its message may quote somebody."""
        span = self._tracer.start_span(f"memos {name}")
        try:
            yield
        except Exception as error:  # goes on to whoever answers
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()

    def count_cost(self, cost: Cost) -> None:
        self._model_calls.inc(cost.model_calls)
        self._model_tokens.inc(cost.tokens)

    def exposition(self) -> bytes:
        """All figures, in Prometheus' text format."""
        return generate_latest(self._registry)

    def close(self) -> None:
        """What was not sent yet is sent."""
        if self._provider:
            self._provider.shutdown()


def _route(scope: Scope) -> str:
    """The path of the route that answered, as it was written in the code; never the one of the request, which anybody
    may write. FastAPI's routes name themselves, those of Starlette only what they call."""
    route, endpoint = scope.get("route"), scope.get("endpoint")
    if route is None and endpoint is not None:
        routes = scope["app"].routes
        route = next((r for r in routes if endpoint in (getattr(r, "endpoint", None), getattr(r, "app", None))), None)
    return getattr(route, "path", "") or "other"


def _provider() -> TracerProvider | None:
    """What sends spans, where the environment says where to; else None, and whoever embeds the server may set one."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "memos"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
