"""Converts host addresses to one spelling, for comparison, and tests whether a host is loopback."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

MAX_CHARS: Final = 64
"""The maximum length of an address with the name of a network interface; longer text is rejected without parsing."""


def plain_address(text: str) -> str | None:
    """Return the address in `text` in Python's spelling; None if `text` is not an address. `0:0:0:0:0:0:0:1`, as Kafka
    writes it, becomes `::1`; an IPv4 address mapped to IPv6 (`::ffff:10.0.0.1`) becomes the IPv4 address, as in Java.
    Names are not resolved.
    """
    if len(text) > MAX_CHARS:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is a loopback address. `localhost` is the only name that is accepted."""
    address = plain_address(host)
    return host == "localhost" if address is None else ip_address(address).is_loopback


def may_be_asked_for(host_header: str) -> bool:
    """Whether a loopback listener may serve a request with this `Host` header: `localhost` or an address. This check
    stops DNS rebinding: if a malicious site directs a browser to this listener, the `Host` header has the host name of
    that site.
    """
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:  # the header contains no valid host, for example because of an unclosed bracket
        return False
    return host == "localhost" or plain_address(host) is not None
