"""docs/reference/apis.md: the APIs of the protocol, and which versions of them are served."""

from __future__ import annotations

from typing import Final

from docs_site.reference.markdown import table
from oncelog_broker.server.cluster import api_versions
from oncelog_broker.server.served import SERVED, Served, highest_version
from oncelog_protocol.api import ApiKey

INTRODUCTION: Final = f"""\
This page lists the requests of Kafka's protocol that a broker serves, and their versions. A broker reports the same
list to every client that sends ApiVersions; clients choose the newest version that both sides have. The ranges of these
{len(SERVED)} APIs are those of a Kafka 4.3 broker. Requests between brokers are those of Kafka with ZooKeeper, and
Envelope, in which a broker forwards requests to the controller.
"""
NOT_SERVED: Final = """\
## Not served

No oncelog broker serves or advertises these APIs of Kafka 4.3. A client that requires one of them fails with an error;
other clients work without them. Consumer groups of both protocols, share groups (KIP-932) and streams groups
(KIP-1071) are supported.
"""


def document() -> str:
    """The page."""
    rows = [_row(served) for _, served in sorted(SERVED.items())]
    missing = [[api.message_name, str(int(api))] for api in sorted(ApiKey) if int(api) not in SERVED]
    return "\n".join(
        [
            "# APIs of the protocol\n",
            INTRODUCTION,
            "## Served\n",
            table(["API", "Key", "Versions", ""], rows),
            NOT_SERVED,
            table(["API", "Key"], missing),
        ]
    )


def _row(served: Served) -> list[str]:
    low, high = served.versions.low, served.versions.high
    remark = "brokers only" if served.is_for_brokers else ""
    if served.advertised_low != low:
        remark = f"versions from {served.advertised_low} on are advertised, those below {low} are refused"
    if highest_version(served, two_phase_commit=False) != high:
        remark = f"version {high} only with `transaction.two.phase.commit.enable=true`"
    if served.key in api_versions.OF_CLIENT_METRICS:
        remark = "advertised while there is a subscription of client metrics"
    return [served.key.message_name, str(int(served.key)), str(low) if low == high else f"{low} to {high}", remark]
