"""Several workers on one machine (`oncelog serve --workers`): broker processes that one supervisor starts.

`command` is run in place of a single broker. `worker_directories` divides the data directories, and moves a single
broker's data into that of worker 1. `worker_settings` says how the settings of a worker follow from the given ones.
`supervisor` starts and stops the workers and serves their metadata store; `worker_process` is one worker, which is
started again when it ends, and `worker_role` what its process learns besides settings. `template_process` has imported
the broker and forks the workers; `forked_worker` is the supervisor's side of that. docs/design/workers.md explains
it.
"""
