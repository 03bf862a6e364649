"""Several workers on one machine (`oncelog serve --workers`): broker processes that one supervisor starts.

`command` is run in place of a single broker, if `--workers` is given. `worker_directories` divides the data
directories, and moves a single broker's data into the data directory of worker 1. `worker_settings` derives the
settings of each worker from the given settings. `supervisor` starts and stops the workers and serves their metadata
store; `worker_process` is one worker process, which is restarted when it ends. `hang_watch` decides whether a worker
hangs. `worker_role` has the values, other than settings, that the supervisor passes to a worker. `template_process` has
imported the broker and forks the workers; `forked_worker` is the supervisor's side of the template process.
docs/design/workers.md explains the design.
"""
