"""TLS and login of connections, from the settings."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import ssl
from typing import Any, Final, NamedTuple, cast

from oncelog.config import GSSAPI, ClientConfig, Token, TokenProvider
from oncelog.connection.sasl import OAuthClient, PlainClient, SaslClient, ScramClient
from oncelog.connection.weak_keys import weakness
from oncelog.errors import AuthenticationFailed, ConfigError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.scram import ScramMechanism

NONCE_BYTES: Final = 24


class SaslLogin(NamedTuple):
    """The login of a client."""

    mechanism: str
    username: str = ""
    password: str = ""
    token_provider: Token | None = None
    service: str = ""
    """The service name of the brokers' principals, for GSSAPI."""

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism}, {self.username})"

    async def client(self, host: str) -> SaslClient:
        """Create the SASL client for one exchange with a broker. Raises AuthenticationFailed if there is no token, and
        ConfigError.
        """
        if self.mechanism == GSSAPI:
            from oncelog.connection.gssapi_client import GssapiClient

            return await asyncio.to_thread(GssapiClient, host, self.service)
        scram = ScramMechanism.named(self.mechanism)
        if scram is not None:
            return ScramClient(scram, self.username, self.password, secrets.token_urlsafe(NONCE_BYTES))
        if self.token_provider is None:
            return PlainClient(self.username, self.password)
        try:
            token = await asyncio.to_thread(self.token_provider)
            return OAuthClient(await token if inspect.isawaitable(token) else token)
        except Exception as error:
            raise AuthenticationFailed(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"no token could be obtained: {type(error).__name__}: {error}"
            ) from error


class Security(NamedTuple):
    """The security settings of all connections of a client; `tls` None means plain TCP, `login` None means no login."""

    tls: ssl.SSLContext | None = None
    login: SaslLogin | None = None

    def tls_options(self, host: str) -> dict[str, Any]:
        """Return the TLS arguments of `create_connection`; `host` is the configured name, which the certificate must
        contain.
        """
        return {} if self.tls is None else {"ssl": self.tls, "server_hostname": host}


UNSECURED: Final = Security()


def security_of(config: ClientConfig) -> Security:
    """Create the security settings from the config; reads the files that the config names. Raises ConfigError."""
    tls = _context(config) if config.security_protocol in ("SSL", "SASL_SSL") else None
    login = None
    if config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        login = SaslLogin(
            config.sasl_mechanism or "",
            config.sasl_plain_username or "",
            config.sasl_plain_password or "",
            _token_of(config.sasl_oauth_token_provider) if config.sasl_mechanism == "OAUTHBEARER" else None,
            config.sasl_kerberos_service_name,
        )
    return Security(tls, login)


def _token_of(provider: Token | TokenProvider | None) -> Token | None:
    """Return the function that returns a token: `provider` itself, or the method `token` of `provider`."""
    method: Token | None = getattr(provider, "token", None)
    return method or cast("Token | None", provider)


def _context(config: ClientConfig) -> ssl.SSLContext:
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl_cafile={config.ssl_cafile!r}: {error}") from error
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is not None:
        password = config.ssl_password or ""
        try:
            # Always pass a password, because without one OpenSSL would prompt on the terminal.
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, lambda: password)
        except (OSError, ssl.SSLError) as error:
            reason = weakness(error) or error
            raise ConfigError(
                f"ssl_certfile={config.ssl_certfile!r}, ssl_keyfile={config.ssl_keyfile!r}: {reason}"
            ) from error
    return context
