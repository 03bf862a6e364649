"""Tests `oncelog doctor` against live brokers: a healthy broker, a broker that cannot be reached, and a broker with
blocked readers.
"""

from __future__ import annotations

import json

from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import eventually
from hanging import hung
from raw_client import RawClient
from warm_commands import run_oncelog_text

from oncelog_broker.local_cluster.ports import own_ports


def examined(address: str, code: int = 0) -> dict[str, list[dict[str, str]]]:
    """Run the command and return its findings by the name of the check."""
    done = run_oncelog_text("doctor", "-b", address, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(done.stdout):
        found.setdefault(row["check"], []).append(row)
    return found


def test_a_healthy_broker_passes_every_check(broker_factory: BrokerFactory, topic: str) -> None:
    (port,) = own_ports(1)
    broker = broker_factory({"http.listener": f"127.0.0.1:{port.number}"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    found = examined(broker.address)
    # The disks of the test machine may be full, and its limit of descriptors may be low, so the test ignores these two
    # checks.
    states = {check: rows[0]["state"] for check, rows in found.items() if check not in ("disks", "descriptors")}
    assert set(states.values()) == {"ok"}, found
    assert states.keys() > {"listeners", "replication", "transactions", "leases", "clocks", "versions", "throttles"}
    assert "not checked" not in str(found)


def test_an_advertised_address_that_nobody_can_reach_is_named_with_what_to_do(broker_factory: BrokerFactory) -> None:
    (nobody,) = own_ports(1)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{nobody.number}"}
    broker = broker_factory(settings).start()
    found = examined(broker.address, code=1)
    (listener,) = found["listeners"]
    assert listener["state"] == "problem"
    assert f"127.0.0.1:{nobody.number}" in listener["what"]
    assert "advertised.listeners" in listener["what_to_do"]


def test_a_hanging_transaction_is_found_and_missing_metrics_are_reported(unguarded: BrokerProcess, topic: str) -> None:
    with RawClient(unguarded.port) as client:
        hung(client, topic)
    found = eventually(lambda: hanging_in(unguarded.address, topic), "the hanging transaction is found")
    assert "find-hanging" in found["transactions"][0]["what_to_do"]
    assert found["clocks"][0]["state"] == "not checked"
    assert "http.listener is not set" in found["clocks"][0]["what"]


def hanging_in(address: str, topic: str) -> dict[str, list[dict[str, str]]] | None:
    found = examined(address, code=1)
    return found if any(topic in row["what"] for row in found["transactions"]) else None
