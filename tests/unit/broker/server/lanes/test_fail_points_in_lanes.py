"""Fail points take effect in Produce's fast code path (lane) just as in the general handler. A process reads its fail
points at its
start, so each test starts two processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from oncelog.fail_points.point import VARIABLE
from oncelog_broker.server.net.lane import VARIABLE as LANES

PRODUCED = """
import asyncio, json, sys
from pathlib import Path
from tests.support.producers import sequenced
from tests.support.served import Client, Coordinator, Served, produce
from tests.support.storage import make_batch
from oncelog_broker.server.lanes.produce import ProduceLane

taken = 0
serve = ProduceLane.serve
def noted(*arguments):
    global taken
    is_taken = serve(*arguments)
    taken += is_taken
    return is_taken
ProduceLane.serve = noted

async def main():
    served = Served(Path(sys.argv[1]))
    served.services.transactions = Coordinator()
    served.partitions[0].lead(0, (1,))
    client = Client(served)
    for number in range(8):
        client.send(produce(bytes(make_batch()), acks=1))
        client.send(produce(bytes(sequenced(7, number, transactional=True)), acks=1, transactional_id="txn"))
    await asyncio.sleep(0)
    print(json.dumps([client.wire.bytes.hex(), served.partitions[0].log.log_end_offset, taken]))
    served.leave()

asyncio.run(main())
"""


def produced(directory: Path, fail_points: str, *, lanes: str) -> list[Any]:
    """Return the bytes of the responses, the log end offset, and how many of 16 requests took the lane."""
    done = subprocess.run(
        [sys.executable, "-c", PRODUCED, str(directory)],
        env={**os.environ, VARIABLE: fail_points, LANES: lanes},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def test_fail_points_strike_in_the_lane_as_in_the_usual_way(tmp_path: Path) -> None:
    points = (
        "append@4 = duplicate; acknowledge@9 = drop; acknowledge@12 = duplicate; append@6 = drop; append@7 = reorder"
    )
    *fast, taken = produced(tmp_path / "fast", points, lanes="on")
    *usual, not_taken = produced(tmp_path / "usual", points, lanes="off")
    *plain, _ = produced(tmp_path / "plain", "", lanes="on")
    assert fast == usual
    assert fast != plain, "the points have struck"
    assert taken > 4, "until the gap that a dropped batch leaves"
    assert not_taken == 0
