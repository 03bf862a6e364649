"""The kill matrix of the cluster: three brokers with three replicas of each partition. At each step of a transaction,
the process with each role (leader, follower, coordinator, client) is killed.

- `cells` lists the steps, and which processes are killed at each step.
- `stage` has the cluster, whose processes stop at their fail points and wait until the test tells them how to continue.
- `run` runs a producer and its transactions, and checks the result.
- `job` is a process that runs many cells, and `pool` runs several jobs.
- `table` writes the results as a page.
- `newer_cells`, `newer_run` and `newer` are the same for the newer protocols: KIP-848, KIP-932, KIP-939 and KIP-1071.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
