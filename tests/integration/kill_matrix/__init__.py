"""The kill matrix: a consume-process-produce run with one fault at one point of a transaction must write each output
exactly once.

`cells` lists the points and the faults, `stage` has broker, proxy and worker, and restarts them, `questions` answers
processes that ask at a point, `worker` is the process that consumes, processes and produces, `older_transactions` our
client without transactions V2, `readers` reads the final records with other libraries, `verdict` checks them, `table`
writes the results as a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
