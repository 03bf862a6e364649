"""A cluster that the console shows, as it is configured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from oncelog_console.values.reader import SchemaFile

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,60}")
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Login(StrEnum):
    """Determines as which user of the cluster the console sends its requests. NONE: the user in the console's settings,
    for all visitors. SASL:
    the cluster's user whose name and password the visitor enters. OIDC: the user whom the identity provider has
    authenticated; the console logs in to the cluster with the user's token (OAUTHBEARER).
    """

    NONE = "none"
    SASL = "sasl"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The configuration of one cluster. `settings`: keyword arguments of the clients of this cluster. `queries_at`:
    URLs of the metrics of Spark queries. `registry_at`: URLs of a schema registry. `schema_files`: the schema of a
    topic's values, by topic name. `connect_at`: the URL of each Kafka Connect, by name.
    """

    name: str
    bootstrap: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    login: Login = Login.NONE
    allows_changes: bool = False
    queries_at: tuple[str, ...] = ()
    registry_at: str | None = None
    schema_files: Mapping[str, SchemaFile] = field(default_factory=dict)
    connect_at: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError for a name that cannot be part of a URL, or a login that does not work with the settings."""
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name[:80]!r}: a cluster has a name of 1 to 60 letters, digits, '.', '_' and '-'")
        if self.login is Login.NONE:
            return
        protocol, mechanism = self.settings.get("security_protocol"), self.settings.get("sasl_mechanism")
        wanted = PASSWORD_MECHANISMS if self.login is Login.SASL else ("OAUTHBEARER",)
        if protocol not in SASL_PROTOCOLS or mechanism not in wanted:
            raise ValueError(
                f"{self.name}: login={self.login} needs security.protocol={' or '.join(SASL_PROTOCOLS)} and "
                f"sasl.mechanism={' or '.join(wanted)} (--command-config)"
            )
