"""The kill matrix: consume-process-produce, with one fault at one point of a transaction, must end exactly once.

`cells` the points and the faults, `stage` broker, proxy and worker, and who starts them again, `questions` where
processes ask what to do at a point, `worker` the process that consumes, processes and produces, `older_transactions`
our client without transactions V2, `readers` what other libraries see in the end, `verdict` what must be true of it,
`table` all of it on a page.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
