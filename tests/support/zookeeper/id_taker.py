"""A process that allocates producer ids from ZooKeeper, in place of a broker that gets very many InitProducerId
requests.

    python -m tests.support.zookeeper.id_taker CONNECT BROKER_ID BLOCKS

After it has used all ids of a block, the process prints the block's first id on a line.
"""

from __future__ import annotations

import asyncio
import sys

from oncelog_broker.metadata.membership.producer_ids import BLOCK_SIZE, ProducerIdManager
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_protocol.errors import ErrorCode, KafkaError

SESSION_SECONDS = 4.0
CONNECTION_SECONDS = 60.0


async def take(connect: str, broker_id: int, blocks: int) -> None:
    store = await ZooKeeperStore.open(connect, session_timeout=SESSION_SECONDS, connection_timeout=CONNECTION_SECONDS)
    ids = ProducerIdManager(store, broker_id)
    for _ in range(blocks):
        first = await next_id(ids)
        for number in range(1, BLOCK_SIZE):
            assert await next_id(ids) == first + number
        print(first, flush=True)
    await store.close()


async def next_id(ids: ProducerIdManager) -> int:
    """Allocate the next id; retry as a producer does."""
    while True:
        try:
            return await ids.generate()
        except KafkaError as error:
            assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(take(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
