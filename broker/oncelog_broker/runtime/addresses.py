"""Host addresses in one spelling, for comparison, and the test for loopback."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

MAX_CHARS: Final = 64
"""The longest address, with the name of a network interface; longer text is rejected without parsing."""


def plain_address(text: str) -> str | None:
    """The address in `text`, as Python writes it; None if it is not an address. `0:0:0:0:0:0:0:1`, as Kafka writes it,
    becomes `::1`; IPv4 mapped to IPv6 (`::ffff:10.0.0.1`) becomes IPv4, as in Java. Names are not resolved."""
    if len(text) > MAX_CHARS:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is loopback. `localhost` is the only such name."""
    address = plain_address(host)
    return host == "localhost" if address is None else ip_address(address).is_loopback


def may_be_asked_for(host_header: str) -> bool:
    """Whether a loopback listener may answer a request with this `Host` header: localhost or an address. A browser that
    a foreign name led here (DNS rebinding) sends that name."""
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:  # for example an unclosed bracket
        return False
    return host == "localhost" or plain_address(host) is not None
