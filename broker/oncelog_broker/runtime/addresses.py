"""Addresses of hosts as all parts of a broker compare them: one spelling for each."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

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
