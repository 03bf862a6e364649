"""Parses and checks `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

If the broker advertised an address that is valid only on its own host, a client on another host could connect to a
bootstrap address, but not to the advertised address (T24). So in the advertised addresses, the wildcard address is
replaced by the machine's host name, and port 0 by the port that was actually bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import (
    ADVERTISED_LISTENERS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
)
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.security_keys import SECURITY_INTER_BROKER_PROTOCOL
from oncelog_protocol.light_classes import NamedTuple

EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  recognised here, not bound
_ENDPOINT: Final = re.compile(
    r"(?P<name>\w+)://(?:\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>\d{1,5})"
)


class SecurityProtocol(StrEnum):
    """The security protocol of a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Listener(NamedTuple):
    """An address on which the broker listens, or an address that the broker advertises. In the setting `listeners`, an
    empty host means every interface, and port 0 means any free port."""

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def listeners(config: BrokerConfig) -> tuple[Listener, ...]:
    """Return the addresses on which the broker listens. Raises InvalidConfig."""
    parsed = _parse_all(LISTENERS.name, config[LISTENERS], _protocols(config))
    ports = [(listener.host, listener.port) for listener in parsed if listener.port]
    if len(set(ports)) < len(ports):
        raise InvalidConfig(f"{LISTENERS.name}: two listeners have the same host and port: {_joined(parsed)}")
    return parsed


def parsed_listeners(config: BrokerConfig, texts: Iterable[str]) -> tuple[Listener, ...]:
    """Addresses to bind in addition to `listeners`; the security protocols are those in `config`. Raises
    InvalidConfig.
    """
    return _parse_all(LISTENERS.name, texts, _protocols(config))


def advertised_listeners(config: BrokerConfig, local_hostname: str) -> tuple[Listener, ...]:
    """Return the addresses that metadata responses contain, one for each advertised listener; `local_hostname` replaces
    the wildcard address.

    Raises InvalidConfig. The method `with_bound_ports` replaces port 0.
    """
    listening = listeners(config)
    texts = config[ADVERTISED_LISTENERS]
    if texts is None:
        return tuple(
            listener._replace(host=local_hostname) if listener.host in EVERY_INTERFACE else listener
            for listener in listening
        )
    advertised = _parse_all(ADVERTISED_LISTENERS.name, texts, _protocols(config))
    names = {listener.name for listener in listening}
    for listener in advertised:
        if listener.name not in names:
            raise InvalidConfig(f"{ADVERTISED_LISTENERS.name}: {listener} has no listener of that name in listeners")
        if listener.host in EVERY_INTERFACE:
            raise InvalidConfig(
                f"{ADVERTISED_LISTENERS.name}: {listener} is not an address that a client can connect to: give a host"
            )
    return advertised


def with_bound_ports(advertised: Iterable[Listener], bound: Mapping[str, int]) -> tuple[Listener, ...]:
    """Return `advertised`, with each port 0 replaced by the actual port of the listener with the same name in
    `bound`.
    """
    return tuple(listener if listener.port else listener._replace(port=bound[listener.name]) for listener in advertised)


def inter_broker_listener(config: BrokerConfig) -> str:
    """Return the name of the listener to which other brokers connect.

    Raises InvalidConfig if no listener with this name is advertised, because other brokers read the address from the
    registration.
    """
    advertised = advertised_listeners(config, "")
    wanted, by_protocol = config[INTER_BROKER_LISTENER_NAME], config[SECURITY_INTER_BROKER_PROTOCOL]
    if wanted is not None and by_protocol is not None:
        raise InvalidConfig(
            f"{INTER_BROKER_LISTENER_NAME.name}={wanted} and {SECURITY_INTER_BROKER_PROTOCOL.name}={by_protocol}: "
            f"set only one of them"
        )
    if wanted is None and by_protocol is not None:
        if by_protocol not in {listener.name for listener in advertised}:
            raise InvalidConfig(
                f"{SECURITY_INTER_BROKER_PROTOCOL.name}={by_protocol}: no listener of that name is advertised: "
                f"{_joined(advertised)}. Where it has another name, set {INTER_BROKER_LISTENER_NAME.name}"
            )
        return by_protocol
    if wanted is None:
        names = {listener.name for listener in advertised}
        return SecurityProtocol.PLAINTEXT.value if SecurityProtocol.PLAINTEXT in names else advertised[0].name
    if wanted.upper() not in {listener.name for listener in advertised}:
        raise InvalidConfig(
            f"{INTER_BROKER_LISTENER_NAME.name}={wanted}: no such listener is advertised: {_joined(advertised)}"
        )
    return wanted.upper()


def has_brokers_only_listener(config: BrokerConfig) -> bool:
    """Whether a separate listener is configured for brokers, so that connections to the other listeners come from
    clients."""
    is_named = config[INTER_BROKER_LISTENER_NAME] is not None or config[SECURITY_INTER_BROKER_PROTOCOL] is not None
    return is_named and len(listeners(config)) > 1


def _protocols(config: BrokerConfig) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener name."""
    protocols = {}
    for pair in config[LISTENER_SECURITY_PROTOCOL_MAP]:
        name, colon, protocol = pair.partition(":")
        if not name or not colon:
            raise InvalidConfig(f"{LISTENER_SECURITY_PROTOCOL_MAP.name}: expected NAME:PROTOCOL, not {pair!r}")
        try:
            protocols[name.upper()] = SecurityProtocol(protocol.upper())
        except ValueError:
            served = ", ".join(SecurityProtocol)
            raise InvalidConfig(
                f"{LISTENER_SECURITY_PROTOCOL_MAP.name}: security protocol {protocol} of listener {name} is not "
                f"served; served: {served}"
            ) from None
    return protocols


def _parse_all(key: str, texts: Iterable[str], protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    parsed = tuple(_parse(key, text, protocols) for text in texts)
    names = [listener.name for listener in parsed]
    if len(set(names)) < len(names):
        raise InvalidConfig(f"{key}: two listeners have the same name: {_joined(parsed)}")
    return parsed


def _parse(key: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) > 0xFFFF:
        raise InvalidConfig(f"{key}: {text!r} is not an address: expected NAME://host:port, with a port up to 65535")
    name = match["name"].upper()
    if name not in protocols:
        raise InvalidConfig(
            f"{key}: {text!r} has a name that {LISTENER_SECURITY_PROTOCOL_MAP.name} gives no security protocol; "
            f"known: {', '.join(protocols)}"
        )
    return Listener(name, protocols[name], match["ipv6"] or match["host"] or "", int(match["port"]))


def _joined(parsed: Iterable[Listener]) -> str:
    return ", ".join(map(str, parsed))
