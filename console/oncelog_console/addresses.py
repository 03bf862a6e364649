"""Parses the address of an HTTP listener, which a command gets as an option."""

from __future__ import annotations

import ipaddress

import click


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises click.BadParameter for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
