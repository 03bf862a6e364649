"""A member of a share group in a process of its own, which may be killed at any time.

    python share_worker.py SERVERS GROUP TOPIC LIMIT

The member accepts each record. It prints one line of JSON before each step that counts, and after its outcome:
["got", partition, offset, delivery count], ["accepting"] all records got since, and ["outcome", whether the acceptance
was confirmed]. It leaves the group after LIMIT records, or stays until it is killed if LIMIT is 0.
"""

from __future__ import annotations

import asyncio
import json
import sys

from oncelog import KafkaError, ShareConsumer

POLL_MS = 100
BACKOFF_MS = 20
TIMEOUT_MS = 5_000
AT_ONCE = 4
"""Number of records of one poll at most, so that a run has several acknowledgements."""


def say(*words: object) -> None:
    print(json.dumps(words), flush=True)


async def run(servers: str, group: str, topic: str, limit: int) -> None:
    count = 0
    async with ShareConsumer(
        servers,
        group_id=group,
        share_acknowledgement_mode="explicit",
        max_poll_records=AT_ONCE,
        request_timeout_ms=TIMEOUT_MS,
        retry_backoff_ms=BACKOFF_MS,
        reconnect_backoff_ms=BACKOFF_MS,
        reconnect_backoff_max_ms=10 * BACKOFF_MS,
    ) as consumer:
        consumer.subscribe([topic])
        while not limit or count < limit:
            try:
                records = (await consumer.poll(POLL_MS))[: limit - count if limit else None]
            except KafkaError as error:
                say("error", repr(error))
                continue
            for record in records:
                say("got", record.partition, record.offset, record.delivery_count)
                record.accept()
            if records:
                count += len(records)
                say("accepting")
                try:
                    outcomes = await consumer.commit()
                except KafkaError as error:
                    say("error", repr(error))
                else:
                    say("outcome", all(error is None for error in outcomes.values()))


if __name__ == "__main__":
    servers, group, topic, limit = sys.argv[1:]
    asyncio.run(run(servers, group, topic, int(limit)))
