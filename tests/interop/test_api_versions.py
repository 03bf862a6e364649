"""Compares the version ranges that oncelog advertises with those of a real broker.

oncelog's ranges are those of a 4.3 broker (semantics, section 3). The maximum versions of an older broker may be lower.
Before 4.0 the minimum versions may be lower, too, because 4.0 removed the oldest versions.
"""

from __future__ import annotations

from apache_kafka import ApacheKafka
from raw_client import RawClient

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

REMOVED_IN_4 = {"3.9.1": True, "4.1.0": False}
"""Maps a release of Apache Kafka to whether this release still serves the API versions that 4.0 removed."""


def advertised(port: int) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="oncelog", client_software_version="1")
    with RawClient(port) as client:
        answer = client.call(request, ApiKey.API_VERSIONS, 3)
    assert answer.error_code == 0
    return {found.api_key: (found.min_version, found.max_version) for found in answer.api_keys}


def test_our_version_ranges_lie_within_kafkas(apache_kafka: ApacheKafka, address: str) -> None:
    theirs, ours = advertised(apache_kafka.port), advertised(int(address.rpartition(":")[2]))
    assert set(ours) == {key for key, served in SERVED.items() if not served.is_for_brokers}
    wrong = []
    for key, (low, high) in sorted(ours.items()):
        name = ApiKey(key).name
        if key not in theirs:
            wrong.append(f"{name}: not served by Apache Kafka")
            continue
        their_low, their_high = theirs[key]
        if (their_low, their_high) != (low, high):
            print(f"{name}: ours {low}-{high}, Apache Kafka {apache_kafka.release} {their_low}-{their_high}")
        if their_high > high:
            wrong.append(f"{name}: Apache Kafka serves up to {their_high}, we up to {high}")
        if their_low > low or (their_low < low and not REMOVED_IN_4[apache_kafka.release]):
            wrong.append(f"{name}: Apache Kafka serves from {their_low}, we from {low}")
    print("not served by us:", *(_name(key) for key in sorted(set(theirs) - set(ours))))
    assert not wrong


def _name(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)
