"""What is told of requests while they are served: counts and times for Prometheus, spans for OpenTelemetry, a line of
the access log. Never what was asked or answered.

Spans leave the process only where OTEL_EXPORTER_OTLP_ENDPOINT says where to.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import Scope

from memos.cost import Cost
from memos.interface.doors.server.edge.lanes import Lanes

access = logging.getLogger("memos.access")
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass
class Seen:
    """What is known of a request once it is over. status 499: the client left before it was answered."""

    status: int = 499
    key: str = ""


class Telemetry:
    def __init__(self, lanes: Lanes) -> None:
        self._registry = of = CollectorRegistry()
        ProcessCollector(registry=of)
        self._requests = Counter("memos_requests", "requests answered", ["route", "status"], registry=of)
        self._seconds = Histogram("memos_request_seconds", "until the end", ["route"], registry=of, buckets=_SECONDS)
        self._going = Gauge("memos_requests_going", "requests that go on", registry=of)
        self._model_calls = Counter("memos_model_calls", "questions put to the model for requests", registry=of)
        self._model_tokens = Counter("memos_model_tokens", "tokens that went through it for them", registry=of)
        waiting = Gauge("memos_waiting", "calls that wait", ["lane"], registry=of)
        for lane in lanes:
            waiting.labels(lane.name).set_function(lambda lane=lane: lane.waiting)  # type: ignore[misc]
        self._provider = _provider()
        self._tracer = (self._provider or trace.get_tracer_provider()).get_tracer("memos")

    @contextmanager
    def request(self, scope: Scope, headers: Mapping[bytes, str]) -> Iterator[Seen]:
        """One request, told as it ends."""
        seen, began = Seen(), time.perf_counter()
        parent = propagate.extract({name.decode("latin-1"): value for name, value in headers.items()})
        with self._tracer.start_as_current_span(
            scope["method"], parent, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            self._going.inc()
            try:
                yield seen
            finally:
                self._going.dec()
                seconds = time.perf_counter() - began
                route = _route(scope)
                self._requests.labels(route, str(seen.status)).inc()
                self._seconds.labels(route).observe(seconds)
                if span.is_recording():
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attributes(
                        {
                            "http.request.method": scope["method"],
                            "http.route": route,
                            "http.response.status_code": seen.status,
                            "memos.key": seen.key,
                        }
                    )
                if access.isEnabledFor(logging.INFO):
                    told = {"method": scope["method"], "route": route, "status": seen.status, "key": seen.key}
                    access.info(json.dumps(told | {"ms": round(seconds * 1e3, 1)}))

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """One call of memos for a request. Of an error, its name alone is told: its words may be somebody's."""
        span = self._tracer.start_span(f"memos {name}")
        try:
            yield
        except Exception as error:  # goes on to whoever answers
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()

    def spent(self, cost: Cost) -> None:
        self._model_calls.inc(cost.model_calls)
        self._model_tokens.inc(cost.tokens)

    def exposed(self) -> bytes:
        return generate_latest(self._registry)

    def close(self) -> None:
        """What was not sent yet is sent."""
        if self._provider:
            self._provider.shutdown()


def _route(scope: Scope) -> str:
    """The path of the route that answered, as it was written in the code; never the one of the request, which anybody
    may write. FastAPI's routes name themselves, those of Starlette only what they call."""
    found, called = scope.get("route"), scope.get("endpoint")
    if found is None and called is not None:
        every = scope["app"].routes
        found = next((r for r in every if called in (getattr(r, "endpoint", None), getattr(r, "app", None))), None)
    return getattr(found, "path", "") or "other"


def _provider() -> Any:
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
