"""The kill matrix: a consume-process-produce run with one fault at one point of a transaction must write each output
exactly once.

- `cells` lists the points and the faults.
- `stage` runs and restarts the broker, the proxy and the worker process, and `cluster_stage` does so with three
brokers.
- `questions` responds to processes that stop at a fail point and ask how to continue.
- `worker` is the process that consumes, processes and produces.
- `older_transactions` makes oncelog's client work without transactions V2.
- `two_phase` processes records in prepared transactions.
- `streams_worker` processes records as two members of a streams group.
- `run` executes one cell of the matrix: one fault at one point.
- `share_cells` lists the points and faults for share groups, `share_run` executes one of their cells with members of
`share_worker`, and `shares` runs them all.
- `readers` reads the records of the output with other libraries, and `verdict` checks them;
`final_look` does both at the end of a run.
- `table` writes the results as a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
