"""FindCoordinator: which broker looks after a group or a transactional id."""

from __future__ import annotations

from oncelog.cluster import Broker
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import error_for
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest


async def find_coordinator(pool: ConnectionPool, key: str, key_type: CoordinatorType) -> Broker:
    """Ask any broker. Raises KafkaError, retriable while there is none yet."""
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    response = await pool.send_to_any(request)
    for found in response.coordinators:  # v4+; before that the response itself is the answer
        if found.error_code:
            raise error_for(found.error_code, found.error_message)
        return Broker(found.node_id, found.host, found.port)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return Broker(response.node_id, response.host, response.port)
