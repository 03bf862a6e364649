"""What the option `tracing` of a producer or consumer stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.errors import ConfigError

if TYPE_CHECKING:
    from oncelog.tracing.tracing import Tracing


def load_tracing() -> type[Tracing]:
    """The class. Raises ConfigError where OpenTelemetry is not installed."""
    try:
        from oncelog.tracing.tracing import Tracing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        raise ConfigError("tracing: needs opentelemetry-api, which `pip install 'oncelog[otel]'` brings") from error
    return Tracing


def wanted_tracing(option: object) -> Tracing | None:
    """None for None and False; True for what OpenTelemetry has been told globally; or a Tracing. Raises ConfigError."""
    if option is None or option is False:
        return None
    tracing = load_tracing()
    if option is True:
        return tracing()
    if not isinstance(option, tracing):
        raise ConfigError(f"tracing={option!r:.100}: must be True, False, None or an oncelog.tracing.Tracing")
    return option
