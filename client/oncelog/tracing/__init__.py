"""OpenTelemetry, where the application asks for it: `Producer(..., tracing=True)`, `Consumer(..., tracing=True)`.

headers.py           (pure) the headers of records as what carries a trace
wanted.py            what the option `tracing` stands for
attributes.py        the names that OpenTelemetry has for what we tell
tracing.py           what records carry, and the work on them
client_spans.py      what a producer or a consumer does
transaction_span.py  the span of a transaction

Only the last three need the package `opentelemetry-api` (the extra `otel`), and only who asks for them imports it.
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
