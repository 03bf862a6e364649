"""A process with its own cluster: each line of its input is a cell as JSON, and each line of its output is the outcome
of a cell.

python -m cluster_matrix.job DIRECTORY ZOOKEEPER     with the result of Stage.client_points in ONCELOG_FAIL_POINTS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cluster_matrix.cells import Cell, Victims
from cluster_matrix.run import run_cell
from cluster_matrix.stage import Stage


def main() -> None:
    directory, zookeeper = sys.argv[1:]
    with Stage(Path(directory), zookeeper) as stage:
        for line in sys.stdin:
            library, when, point, victims, aborts = json.loads(line)
            outcome = run_cell(stage, Cell(library, when, point, Victims(victims), aborts))
            print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
