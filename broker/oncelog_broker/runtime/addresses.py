"""Addresses of hosts as all parts of a broker compare them: one spelling for each, and which are this machine's own."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

MAX_CHARS: Final = 64
"""Of an address, with the name of a network interface behind it. What is longer is not looked at."""


def plain_address(text: str) -> str | None:
    """The address that `text` spells, as Python writes it; None: it spells none. Kafka writes `0:0:0:0:0:0:0:1` for
    `::1`; IPv4 that comes through IPv6 (`::ffff:10.0.0.1`) is IPv4, as for Java. Names are not looked up."""
    if len(text) > MAX_CHARS:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine's loopback. No name but localhost is."""
    address = plain_address(host)
    return host == "localhost" if address is None else ip_address(address).is_loopback


def may_be_asked_for(host_header: str) -> bool:
    """Whether a request with this `Host` may be answered by a listener on loopback, to which no name belongs but
    localhost. A browser that was led here by a name of somebody else's (DNS rebinding) sends that name."""
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:  # a bracket that is not closed, say
        return False
    return host == "localhost" or plain_address(host) is not None
