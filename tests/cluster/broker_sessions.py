"""Ends brokers' sessions with ZooKeeper from outside, and reads their registrations."""

from __future__ import annotations

import json
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from replicated_cluster import ReplicatedCluster


def end_session(cluster: ReplicatedCluster, node_id: int) -> None:
    """End the broker's session in the way in which ZooKeeper ends the session of a silent client, so the broker learns
    of the end only at its next request.
    """

    def end() -> bool:
        """End the present session, and return whether that has succeeded. The session may have expired before this
        call, and the broker may have resumed it before this request arrived.
        """
        found = json.loads((cluster.brokers[node_id].data / ".oncelog-session").read_text())
        key = (int(found["session"], 16), bytes.fromhex(found["password"]))
        client = KazooClient(cluster.zookeeper, timeout=60, client_id=key)
        try:
            client.start(60)
            has = client.client_id  # the result is None, too, if this connection was lost immediately
        except (ConnectionLoss, SessionExpiredError, KazooTimeoutError):
            return False  # the broker has resumed its session before this request
        finally:
            client.stop()
            client.close()
        return has is not None and has[0] == key[0] and owner(cluster, node_id) != key[0]

    cluster.until(end, f"the session of broker {node_id} is ended")


def broker_epoch(cluster: ReplicatedCluster, node_id: int) -> int:
    """Return the broker epoch of the broker's registration, or -1 if it is not registered."""
    found = _registration(cluster, node_id)
    return -1 if found is None else int(found.czxid)


def owner(cluster: ReplicatedCluster, node_id: int) -> int | None:
    """Return the id of the session in which the broker is registered."""
    found = _registration(cluster, node_id)
    return None if found is None else int(found.ephemeralOwner)


def _registration(cluster: ReplicatedCluster, node_id: int) -> Any:
    client = KazooClient(cluster.zookeeper, timeout=60)
    client.start(60)
    try:
        return client.retry(client.exists, f"/brokers/ids/{node_id}")
    finally:
        client.stop()
        client.close()
