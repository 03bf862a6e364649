"""docs/reference/apis.md: the APIs of the protocol, and which versions of them are served."""

from __future__ import annotations

from typing import Final

from docs_site.reference.markdown import table
from oncelog_broker.server.cluster import api_versions
from oncelog_broker.server.served import SERVED, Served, highest_version
from oncelog_protocol.api import ApiKey

INTRODUCTION: Final = f"""\
Which requests of Kafka's protocol a broker answers, and in which versions: what a client needs to know before it is
pointed at oncelog. The broker says the same to every client that asks (ApiVersions); clients choose the newest
version that both have. The ranges of these {len(SERVED)} APIs are those of a Kafka 4.3 broker; what only brokers ask
one another is as Kafka with ZooKeeper had it, and Envelope, by which a broker passes on what is for the controller.
"""
NOT_SERVED: Final = """\
## Not served

APIs of Kafka 4.3 that no broker of oncelog answers or advertises. Clients that need one of them say so; the others do
without: streams groups (KIP-1071) are not there; consumer groups of both protocols and share groups (KIP-932) are.
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
