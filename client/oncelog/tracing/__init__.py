"""Optional OpenTelemetry: `Producer(..., tracing=True)`, `Consumer(..., tracing=True)`.

  headers.py          (pure) trace context in record headers
  wanted.py           resolves the option `tracing`
  attributes.py       attribute names of OpenTelemetry's conventions
  tracing.py          the context of records, and spans of their processing
  client_spans.py     spans of a producer or consumer
  transaction_span.py the span of a transaction

Only tracing.py, client_spans.py and transaction_span.py need the package `opentelemetry-api` (the extra `otel`), and
they are imported only with the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.tracing.tracing import Tracing

__all__ = ["Tracing"]


def __getattr__(name: str) -> Any:
    if name != "Tracing":
        raise AttributeError(f"module 'oncelog.tracing' has no attribute {name!r}")
    from oncelog.tracing.wanted import load

    return load().Tracing
