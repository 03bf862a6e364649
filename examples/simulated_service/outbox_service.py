"""A service that writes the rows of a database table to a topic, in two versions: one with a bug that is easily
overlooked, and a correct one.
"""

from __future__ import annotations

import asyncio

from oncelog import Consumer, Producer, TopicPartition
from oncelog_testing.history.events import Place, Send
from oncelog_testing.history.recorder import History

ORDERS = TopicPartition("orders", 0)
ROWS = 12
DATABASE_SECONDS = 0.3
PATIENCE_MS = 5_000


class CarelessOutbox:
    """The rows that are not written yet. The object outlives the service's process, as a database does."""

    def __init__(self) -> None:
        self.rows = [b"order %d" % number for number in range(ROWS)]
        self.noted: dict[bytes, Send] = {}
        """The sends that the history knows: a row that is written again remains the same send."""

    async def run(self, servers: str, history: History) -> None:
        """Write each row, then remove it from the table: a row is written twice if the service dies in between."""
        async with Producer(servers, request_timeout_ms=PATIENCE_MS) as producer:
            while self.rows:
                send = self.note(history)
                written = await producer.send_and_wait(ORDERS.topic, self.rows[0], partition=ORDERS.partition)
                history.acknowledged(send, written.offset)
                await self.remove_row()

    async def remove_row(self) -> None:
        """Remove the next row from the table, which takes the database some time."""
        await asyncio.sleep(DATABASE_SECONDS)
        self.rows.pop(0)

    def note(self, history: History) -> Send:
        """Note in the history that the next row is about to be written."""
        row = self.rows[0]
        if row not in self.noted:
            self.noted[row] = history.send("outbox", Place(*ORDERS), row)
        return self.noted[row]


class Outbox(CarelessOutbox):
    """Looks in the topic which rows the earlier process has written."""

    async def run(self, servers: str, history: History) -> None:
        # The start of this producer ends the transactions of an earlier process, which can then write nothing more.
        async with Producer(servers, transactional_id="outbox", request_timeout_ms=PATIENCE_MS) as producer:
            written_before = await read_all(servers)
            self.rows = [row for row in self.rows if row not in written_before]
            while self.rows:
                send = self.note(history)
                async with producer.transaction():
                    written = await producer.send_and_wait(ORDERS.topic, self.rows[0], partition=ORDERS.partition)
                history.acknowledged(send, written.offset)
                await self.remove_row()


async def read_all(servers: str) -> set[bytes]:
    """Return the committed rows in the topic."""
    found: set[bytes] = set()
    async with Consumer(servers, isolation_level="read_committed", request_timeout_ms=PATIENCE_MS) as consumer:
        consumer.assign([ORDERS])
        consumer.seek_to_beginning(ORDERS)
        end = (await consumer.end_offsets([ORDERS]))[ORDERS]
        while await consumer.position(ORDERS) < end:
            for records in (await consumer.poll(100)).values():
                found.update(record.value for record in records if record.value is not None)
    return found
