"""A ZooKeeper server that ends with the test's process: this module, run as a program, runs the server until its
standard input ends.

`python -m oncelog_testing.zookeeper_keeper DIRECTORY` prints `ready HOST:PORT`, or `missing` and why ZooKeeper cannot
be started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(directory: Path) -> int:
    from oncelog_broker.local_cluster.ensemble import Ensemble
    from oncelog_broker.local_cluster.java import JavaNotFound, find_java
    from oncelog_broker.local_cluster.zookeeper_jars import JarsNotFound, provide_jars

    try:
        java, jars = find_java(), provide_jars(lambda _: None)
    except (JavaNotFound, JarsNotFound) as error:
        _say(f"missing {' '.join(str(error).split())}")
        return 1
    ensemble = Ensemble(directory, java, jars, is_synced=False, dies_with_us=True)
    try:
        ensemble.start()
        _say(f"ready {ensemble.connect_string}")
        while os.read(0, 4096):
            pass
    finally:
        ensemble.kill()
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
