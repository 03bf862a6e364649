"""FindCoordinator: the coordinator of a group or transactional id."""

from __future__ import annotations

from oncelog.cluster import Broker
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import error_for
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest


async def find_coordinator(
    pool: ConnectionPool, key: str, key_type: CoordinatorType, *, elsewhere: bool = False
) -> Broker:
    """Request the coordinator of `key` from a broker, and add the coordinator to the pool. With `elsewhere`, the
    request goes to a different broker than last time, because the last response was wrong. Raises KafkaError, which is
    retriable while no
    coordinator is available.
    """
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    response = await pool.ask_any(request, elsewhere=elsewhere)
    found = Broker(response.node_id, response.host, response.port)
    code, message = response.error_code, response.error_message
    # from v4 on, the response has a list of coordinators; before v4, it has the fields of one coordinator
    for answer in response.coordinators[:1]:
        found = Broker(answer.node_id, answer.host, answer.port)
        code, message = answer.error_code, answer.error_message
    if code:
        raise error_for(code, message)
    pool.cluster = pool.cluster.with_brokers([found])
    return found
