"""The kill matrix of the cluster: three brokers, three replicas of each partition, and at each step of a transaction a
kill of the process with each role (leader, follower, coordinator, client).

- `cells` lists the steps, and which processes are killed there.
- `stage` has the cluster, whose processes stop at their fail points and ask the test how to continue.
- `run` plays a producer and its transactions, and checks the result.
- `job` is a process that plays many cells, and `pool` runs several jobs.
- `table` writes the results as a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
