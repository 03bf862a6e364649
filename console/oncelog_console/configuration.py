"""The file of `oncelog console --config`: several clusters, and logins. TOML:

    public_url = "https://console.example.com"      # where browsers reach the console

    [oidc]                                          # for clusters with login = "oidc"
    issuer = "https://id.example.com"
    client_id = "oncelog-console"
    client_secret_file = "secret"                   # without it: a public client
    shown_token = "access_token"                    # what clusters are shown, or "id_token"
    scope = "openid profile"

    [clusters.production]
    bootstrap_servers = "broker-1:9092,broker-2:9092"
    command_config = "client.properties"            # how to connect, with the keys of Kafka's tools
    login = "oidc"                                  # "none", "sasl" or "oidc"
    allow_changes = true
    schema_registry = "http://registry:8081"
    schemas = { orders = "order.avsc", payments = "payments.desc#shop.Payment" }
    connect = { main = "http://connect:8083" }
    queries = ["http://driver:9405/metrics"]

Paths in the file are relative to the directory of the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oncelog.cli.command_config import read_properties, settings_of
from oncelog.serialization import SerializationError, codec_of_file
from oncelog_console.clusters import Cluster, Login
from oncelog_console.login.oidc import SCOPE, TOKENS, OidcSettings
from oncelog_console.values.reader import SchemaFile

CLUSTER_KEYS: Final = {
    "bootstrap_servers": str, "command_config": str, "login": str, "allow_changes": bool, "schema_registry": str,
    "schemas": dict, "connect": dict, "queries": list,
}  # fmt: skip
OIDC_KEYS: Final = {
    "issuer": str, "client_id": str, "client_secret_file": str, "shown_token": str, "scope": str,
}  # fmt: skip
MAX_CLUSTERS: Final = 50


@dataclass(frozen=True, slots=True)
class Configuration:
    """The contents of the configuration file."""

    clusters: tuple[Cluster, ...]
    oidc: OidcSettings | None
    public_url: str | None


def read_configuration(path: Path) -> Configuration:
    """Read the configuration file. Raises OSError, or ValueError with the position of an error in the file."""
    try:
        document = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    _check(document, {"public_url": str, "oidc": dict, "clusters": dict}, str(path))
    public_url = document.get("public_url")
    oidc = _oidc(document["oidc"], public_url, path) if "oidc" in document else None
    tables = document.get("clusters", {})
    if not 0 < len(tables) <= MAX_CLUSTERS:
        raise ValueError(f"{path}: from one to {MAX_CLUSTERS} clusters are needed: [clusters.NAME]")
    clusters = tuple(_cluster(name, table, path) for name, table in tables.items())
    return Configuration(clusters, oidc, public_url)


def schema_files(given: Mapping[str, str], directory: Path) -> dict[str, SchemaFile]:
    """Return the schema of each topic, from `FILE` or `FILE#MESSAGE` for each topic. Each file is also parsed, so that
    a mistake in it is reported when the console starts. Raises ValueError.
    """
    found = {}
    for topic, text in given.items():
        file, _, message = text.partition("#")
        path = (directory / file).absolute()
        try:
            codec_of_file(path, message or None)
        except (SerializationError, OSError) as error:
            raise ValueError(f"the schema of {topic}: {error}") from error
        found[topic] = SchemaFile(path, message or None)
    return found


def check_urls(urls: Mapping[str, str]) -> None:
    """Raise ValueError unless every address is an http:// or https:// URL."""
    for name, url in urls.items():
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError(f"{name}: {url!r} is not a URL, such as http://127.0.0.1:8083")


def _cluster(name: str, table: Any, path: Path) -> Cluster:
    where = f"{path}: clusters.{name}"
    _check(table, CLUSTER_KEYS, where)
    if "bootstrap_servers" not in table:
        raise ValueError(f"{where}: bootstrap_servers is missing")
    login = table.get("login", Login.NONE)
    if login not in tuple(Login):
        raise ValueError(f"{where}: login is one of {', '.join(Login)}, not {login!r}")
    try:
        settings = {}
        if "command_config" in table:
            settings = settings_of(read_properties((path.parent / table["command_config"]).read_text()))
        files = schema_files(table.get("schemas", {}), path.parent)
        connect = dict(table.get("connect", {}))
        queries = {f"queries[{place}]": url for place, url in enumerate(table.get("queries", []))}
        check_urls(connect | queries)
        cluster = Cluster(
            name,
            table["bootstrap_servers"],
            settings,
            Login(login),
            table.get("allow_changes", False),
            tuple(queries.values()),
            table.get("schema_registry"),
            files,
            connect,
        )
        cluster.check()
    except (ValueError, OSError) as error:
        raise ValueError(f"{where}: {error}") from error
    return cluster


def _oidc(table: Any, public_url: str | None, path: Path) -> OidcSettings:
    where = f"{path}: oidc"
    _check(table, OIDC_KEYS, where)
    for key in ("issuer", "client_id"):
        if key not in table:
            raise ValueError(f"{where}: {key} is missing")
    if public_url is None:
        raise ValueError(f"{path}: public_url is missing: the identity provider leads browsers back there")
    secret = None
    try:
        if "client_secret_file" in table:
            secret = (path.parent / table["client_secret_file"]).read_text().strip()
        settings = OidcSettings(
            table["issuer"],
            table["client_id"],
            secret,
            public_url,
            table.get("scope", SCOPE),
            table.get("shown_token", TOKENS[0]),
        )
        settings.check()
    except (ValueError, OSError) as error:
        raise ValueError(f"{where}: {error}") from error
    return settings


def _check(table: Any, keys: Mapping[str, type], where: str) -> None:
    """Raise ValueError for an unknown key or a value of the wrong type."""
    if not isinstance(table, dict):
        raise ValueError(f"{where}: a table is needed")
    for key, value in table.items():
        if key not in keys:
            raise ValueError(f"{where}: there is no key {key!r}, only {', '.join(keys)}")
        if not isinstance(value, keys[key]):
            raise ValueError(f"{where}: {key} is a {keys[key].__name__}, not {value!r}")
