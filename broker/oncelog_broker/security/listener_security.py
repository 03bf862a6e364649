"""The security of one listener, from its settings: TLS, SASL mechanisms, principal mapping.

The modules of TLS and SASL are imported when a listener with TLS or SASL is set up, because a start without them is
shorter. No connection imports a module.
"""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog_broker.config import security_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.config.listeners import Listener
from oncelog_broker.config.secret import Secret
from oncelog_broker.security.principal import ANONYMOUS, USER_TYPE, Principal
from oncelog_broker.security.sasl.exchange import SaslExchange
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.scram import ScramMechanism

if TYPE_CHECKING:
    from oncelog.connection.security import Security
    from oncelog_broker.security.sasl.credentials import ScramCredential
    from oncelog_broker.security.sasl.decoys import Decoys, UserConfigs
    from oncelog_broker.security.sasl.jwks import Jwks
    from oncelog_broker.security.sasl.mechanism import Mechanism
    from oncelog_broker.security.sasl.oauthbearer import TokenRules
    from oncelog_broker.security.tls.contexts import TlsContext
    from oncelog_broker.security.tls.names import Rule

logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 24


class NoPrincipal(Exception):
    """Raised if no rule of ssl.principal.mapping.rules maps the certificate's name to a principal."""


class Login(NamedTuple):
    """The credentials with which this broker logs in to other brokers."""

    mechanism: str
    username: str
    password: Secret


class ListenerSecurity:
    """The security of one listener. Raises InvalidConfig for invalid settings."""

    def __init__(
        self,
        listener: Listener,
        config: BrokerConfig,
        users: Callable[[], UserConfigs],
        login_key: Callable[[], bytes],
        *,
        is_inter_broker: bool,
    ) -> None:
        """`login_key` returns a secret of the cluster; it is called after the listener starts to serve."""
        protocol = listener.security_protocol
        self.name = listener.name
        self._config = ListenerConfig(config, listener.name)
        self._users = users
        self._login_key = login_key
        self.tls: TlsContext | None = None
        self._rules: Sequence[Rule] = ()
        if protocol.has_tls:
            self._set_up_tls(is_inter_broker)
        self.jwks: list[Jwks] = []
        """The sets of token keys that a background task must refresh."""
        self._unreadable: set[tuple[str, str]] = set()
        """Users whose unreadable credentials were already logged."""
        self._mechanisms: dict[str, Callable[[], Mechanism]] = {}
        self._max_reauth_ms: dict[str, int] = {}
        self.login: Login | None = None
        if protocol.has_sasl:
            self._set_up_sasl(is_inter_broker)
        self.max_receive_bytes = self._config[keys.SASL_SERVER_MAX_RECEIVE_SIZE]
        self.failed_delay_seconds = self._config[keys.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000

    def exchange(self) -> SaslExchange | None:
        """Return the SASL exchange of a new connection; None if the listener requires no login."""
        return SaslExchange(self._mechanisms, self._max_reauth_ms) if self._mechanisms else None

    def towards_brokers(self) -> Security:
        """Return the security of a connection to another broker: the TLS context and the login. Call this method for
        each connection, because certificates may be replaced.
        """
        # Import here, because a broker without a cluster does not need this module.
        from oncelog.connection.security import SaslLogin, Security

        login = None
        if self.login is not None:
            mechanism, username, password = self.login
            login = SaslLogin(mechanism, username, password.reveal())
        return Security(None if self.tls is None else self.tls.client, login)

    def principal_of(self, shaken: ssl.SSLObject) -> Principal:
        """Return the principal of a TLS connection, before any SASL login. Raises NoPrincipal."""
        from oncelog_broker.security.tls.names import distinguished_name, mapped_name

        certificate = shaken.getpeercert()
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate)
        mapped = mapped_name(self._rules, name)
        if not mapped:
            raise NoPrincipal(f"no rule of {keys.SSL_PRINCIPAL_MAPPING_RULES.name} fits {name}")
        return Principal(USER_TYPE, mapped)

    def _set_up_tls(self, is_inter_broker: bool) -> None:
        from oncelog_broker.security.tls.contexts import TlsContext
        from oncelog_broker.security.tls.names import parse_rules

        self.tls = TlsContext(self._config, is_inter_broker=is_inter_broker)
        self._rules = parse_rules(self._config[keys.SSL_PRINCIPAL_MAPPING_RULES])

    def _set_up_sasl(self, is_inter_broker: bool) -> None:
        enabled = self._config[keys.SASL_ENABLED_MECHANISMS]
        if not enabled:
            raise InvalidConfig(
                f"listener {self.name} has SASL and no mechanism: set {keys.SASL_ENABLED_MECHANISMS.name} to any of "
                f"{', '.join(keys.MECHANISMS)}"
            )
        for mechanism in enabled:
            of_mechanism = self._config.with_mechanism(mechanism)
            self._mechanisms[mechanism] = self._machines(mechanism, of_mechanism)
            self._max_reauth_ms[mechanism] = of_mechanism[keys.CONNECTIONS_MAX_REAUTH_MS]
        if is_inter_broker:
            self.login = self._broker_login()

    def _machines(self, name: str, config: ListenerConfig) -> Callable[[], Mechanism]:
        scram = ScramMechanism.named(name)
        if scram is not None:
            from oncelog_broker.security.sasl.decoys import Decoys
            from oncelog_broker.security.sasl.scram import ScramExchange

            credential = partial(self._credential, scram, Decoys(scram, self._login_key))
            return lambda: ScramExchange(scram, secrets.token_urlsafe(NONCE_BYTES), credential)
        if name == keys.PLAIN:
            from oncelog_broker.security.sasl.jaas import plain_users
            from oncelog_broker.security.sasl.plain import PlainMechanism

            users = plain_users(_jaas_options(config))
            if not users:
                logger.warning("PLAIN has no users", extra={"setting": config.name_of(keys.SASL_JAAS_CONFIG)})
            return lambda: PlainMechanism(users)
        from oncelog_broker.security.sasl.oauthbearer import OAuthExchange

        rules = self._token_rules(config)
        return lambda: OAuthExchange(rules)

    def _credential(self, mechanism: ScramMechanism, decoys: Decoys, user: str) -> tuple[ScramCredential, bool]:
        """Return the credential of `user` and True, or a decoy (a credential without a known password) and False. The
        timing must not reveal whether the user exists, so the steps are the same in both cases: also for an existing
        user a decoy is created and formatted, and a decoy is parsed like a stored credential.
        """
        from oncelog_broker.security.sasl.credentials import parse_credential

        users = self._users()
        decoy = decoys.credential(user, users)
        written = decoy.format()
        text = users.get(user, {}).get(mechanism.mechanism_name)
        try:
            return parse_credential(written if text is None else text), text is not None
        except ValueError:
            if text is not None and (user, text) not in self._unreadable:
                self._unreadable.add((user, text))
                logger.error(
                    "a SCRAM credential in the metadata store cannot be read, so this user cannot log in: set it again",
                    extra={"user": user, "mechanism": mechanism.mechanism_name},
                )
            return decoy, False

    def _token_rules(self, config: ListenerConfig) -> TokenRules:
        from oncelog_broker.security.sasl.jwks import Jwks
        from oncelog_broker.security.sasl.oauthbearer import TokenRules

        url, is_open = config[keys.OAUTHBEARER_JWKS_ENDPOINT_URL], config[keys.OAUTHBEARER_ALLOW_UNSECURED]
        if url is None and not is_open:
            raise InvalidConfig(
                f"listener {self.name}: OAUTHBEARER needs {keys.OAUTHBEARER_JWKS_ENDPOINT_URL.name}; for tests alone "
                f"{keys.OAUTHBEARER_ALLOW_UNSECURED.name}=true believes everybody"
            )
        try:
            import jwt  # noqa: F401
        except ModuleNotFoundError:
            raise InvalidConfig(f"listener {self.name}: OAUTHBEARER needs the package PyJWT[crypto]") from None
        key_of: Callable[[str | None], object] = lambda _: None  # noqa: E731
        if url is not None:
            jwks = Jwks(url, config[keys.OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS] / 1000)
            self.jwks.append(jwks)
            key_of = jwks.key
        return TokenRules(
            key_of,
            config[keys.OAUTHBEARER_EXPECTED_AUDIENCE],
            config[keys.OAUTHBEARER_EXPECTED_ISSUER],
            config[keys.OAUTHBEARER_CLOCK_SKEW_SECONDS],
            config[keys.OAUTHBEARER_SUB_CLAIM_NAME],
            is_open,
        )

    def _broker_login(self) -> Login | None:
        mechanism = self._config[keys.SASL_MECHANISM_INTER_BROKER_PROTOCOL]
        of_mechanism = self._config.with_mechanism(mechanism)
        options = _jaas_options(of_mechanism)
        name, password = options.get("username"), options.get("password")
        if not name or not password:
            return None
        if mechanism not in self._mechanisms:
            raise InvalidConfig(
                f"{keys.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name}={mechanism} is not among the mechanisms of listener "
                f"{self.name}: {', '.join(self._mechanisms)}"
            )
        return Login(mechanism, name, Secret(password))


def _jaas_options(config: ListenerConfig) -> dict[str, str]:
    from oncelog_broker.security.sasl.jaas import parse_jaas

    secret = config[keys.SASL_JAAS_CONFIG]
    return {} if secret is None else parse_jaas(config.name_of(keys.SASL_JAAS_CONFIG), secret)
