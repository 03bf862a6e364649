"""`--command-config client.properties`: how the commands connect, with the keys of Kafka's own tools.

Security settings that the client cannot apply are refused. Other keys that oncelog's clients do not know are ignored,
because they may be meant for other tools that read the same file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import click

from oncelog.cli.profiles import of_profile

SETTINGS: Final = "oncelog.cli.command_config"
"""The key of the settings in the `meta` of click's context."""

_SAME: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_WITHOUT_EFFECT: Final = frozenset({"ssl.protocol", "ssl.enabled.protocols", "sasl.client.callback.handler.class"})
"""Security settings that are ignored, because OpenSSL chooses the value itself or because the value names a Java class.
"""
_NUMBERS: Final = frozenset({"request.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "metadata.max.age.ms"})
_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")


def read_properties(text: str) -> dict[str, str]:
    """Parse `key=value` lines; `#` begins a comment, `\\` at the end of a line continues the line."""
    values = {}
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            values[key.strip()] = value.strip().replace("\\\\", "\\").replace("\\n", "\n").replace("\\:", ":")
    return values


def settings_of(properties: dict[str, str]) -> dict[str, Any]:
    """Convert properties into keywords of a client. Raises ValueError; its message contains no values."""
    settings: dict[str, Any] = {}
    for name, raw in properties.items():
        value = _REFERENCE.sub(_referred, raw)
        if name in _SAME:
            settings[_SAME[name]] = value
        elif name in ("ssl.truststore.type", "ssl.keystore.type"):
            if value.upper() != "PEM":
                raise ValueError(f"{name}={value}: PEM is read here (openssl pkcs12 -in FILE -out FILE.pem -nodes)")
        elif name == "ssl.endpoint.identification.algorithm":
            settings["ssl_check_hostname"] = value != ""
        elif name == "sasl.jaas.config":
            settings |= _login(value, properties.get("sasl.mechanism", ""))
        elif name in _NUMBERS:
            settings[name.replace(".", "_")] = int(value)
        elif name == "client.id":
            settings["client_id"] = value
        elif name.startswith(("ssl.", "sasl.", "security.")) and name not in _WITHOUT_EFFECT:
            raise ValueError(f"{name}: this key has no effect here; supported keys: {', '.join(sorted(_SAME))}")
    return settings


def connection_settings() -> dict[str, Any]:
    """Return the settings in the --command-config file of the running command."""
    context = click.get_current_context(silent=True)
    return {} if context is None else dict(context.meta.get(SETTINGS, {}))


def take_over(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Read the file of --command-config; click calls this function as the callback of the option."""
    path = of_profile(context, "command_config", path, "command_config")
    if path is None:
        return
    try:
        context.meta[SETTINGS] = settings_of(read_properties(Path(path).read_text()))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from None


def _login(jaas: str, mechanism: str) -> dict[str, Any]:
    from oncelog.jaas import jaas_options

    try:
        options = jaas_options(jaas)
    except ValueError as error:
        raise ValueError(f"sasl.jaas.config: {error}") from None
    if mechanism == "GSSAPI":
        service = options.get("serviceName")
        return {} if service is None else {"sasl_kerberos_service_name": service}
    if mechanism == "OAUTHBEARER":
        token = options.get("token")
        if token is None:
            raise ValueError('sasl.jaas.config: OAUTHBEARER needs token="..." here')
        return {"sasl_oauth_token_provider": lambda: token}
    return {"sasl_plain_username": options.get("username"), "sasl_plain_password": options.get("password")}


def _referred(match: re.Match[str]) -> str:
    provider, what = match.groups()
    if provider == "file":
        return Path(what).read_text().removesuffix("\n")
    if what not in os.environ:
        raise ValueError(f"{match[0]}: unknown environment variable {what}")
    return os.environ[what]
