"""The kill matrix of the cluster: three brokers, three replicas of everything, and whoever is killed at each step.

`cells` the steps and who is killed there, `stage` the cluster and where its processes ask at their fail points, `run`
a producer and its transactions, with the checker in the end, `job` a process that does so for many cells, `pool`
several of these, `table` all of it on a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
