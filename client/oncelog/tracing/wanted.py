"""Resolves the option `tracing` of a producer or consumer."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from oncelog.errors import ConfigError

if TYPE_CHECKING:
    from oncelog.tracing.client_spans import ClientSpans


def load() -> ModuleType:
    """Return the module that needs OpenTelemetry. Raises ConfigError if OpenTelemetry is not installed."""
    try:
        from oncelog.tracing import client_spans
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        raise ConfigError("tracing: needs opentelemetry-api, which `pip install 'oncelog[otel]'` brings") from error
    return client_spans


def wanted_spans(option: object, client_id: str, group_id: str | None = None) -> ClientSpans | None:
    """Return the spans for the option `tracing`. The result is None for None and False; True uses OpenTelemetry's
    global setup, and a Tracing object is used as it is. Raises ConfigError.
    """
    if option is None or option is False:
        return None
    module = load()
    tracing = module.Tracing() if option is True else option
    if not isinstance(tracing, module.Tracing):
        raise ConfigError(f"tracing={option!r:.100}: must be True, False, None or an oncelog.tracing.Tracing")
    spans: ClientSpans = module.ClientSpans(tracing, client_id, group_id)
    return spans
