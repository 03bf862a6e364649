"""The key of the HTTP listener, which does not speak Kafka's protocol, and the parser of the listener's address.

`BROKER_KEYS` in `broker_keys` includes this key.
"""

from __future__ import annotations

import re
from typing import Final

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, InvalidConfig, not_empty
from oncelog_protocol.light_classes import NamedTuple

LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65_535

HTTP_LISTENER = ConfigKey[str | None](
    "http.listener",
    ConfigType.STRING,
    None,
    "The address of the HTTP listener for metrics (/metrics) and health checks (/health/live, /health/ready): "
    "host:port, or a port on 127.0.0.1; port 0 means any free port, 0.0.0.0 means every interface. The HTTP "
    "listener has no authentication and no encryption. If not set, there is no HTTP listener. Not a key of "
    "Kafka's.",
    not_empty(),
    Importance.MEDIUM,
)

_ADDRESS: Final = re.compile(r"(?:(?:\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/\s]*)):)?(?P<port>\d{1,5})")


class HttpAddress(NamedTuple):
    """A host and port; `str` returns the form for a URL."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def http_address(text: str) -> HttpAddress:
    """Parse `8080`, `:8080`, `0.0.0.0:8080` or `[::1]:8080`. Raises InvalidConfig."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > MAX_PORT:
        raise InvalidConfig(f"{HTTP_LISTENER.name}: {text!r} is not a host:port, nor a port")
    return HttpAddress(match["ipv6"] or match["host"] or LOOPBACK, int(match["port"]))
