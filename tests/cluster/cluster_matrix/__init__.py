"""The kill matrix of the cluster: three brokers, three replicas of each partition, and a kill in each role at each
step.

- `cells` lists the steps, and which processes are killed there.
- `stage` has the cluster, whose processes ask at their fail points.
- `run` plays a producer and its transactions, and checks the result.
- `job` is a process that plays many cells, and `pool` runs several jobs.
- `table` writes the results as a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
