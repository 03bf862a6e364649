"""The address that an HTTP listener of a command is given."""

from __future__ import annotations

import ipaddress

import click


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. click.BadParameter."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on that host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
