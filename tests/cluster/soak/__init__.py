"""The soak: clients of every kind work on three brokers while one fault after another strikes.

- `plan` (pure) derives the faults, their victims and their times from a seed.
- `stage` runs three brokers and an ensemble, with proxies between them.
- `faults` defines how each fault is caused and how it is ended again.
- `progress` records when each client made progress, and for how long it stalled in between.
- `writers` has the idempotent producers that write the numbered lines which all other clients read.
- `pipelines` has the shared part of the consume-process-produce pipelines `our_pipeline` and `librdkafka_pipeline`.
- `readers` has consumers without a group; they read either only committed records or all records.
- `members` has groups whose members join and leave.
- `streams` runs Kafka Streams, whose instances are killed.
- `observers` records leaders, epochs and committed offsets as brokers report them, and the resources of processes.
- `run` plays the entire run, up to the verdict of the checker.
- `files` checks the brokers' files after a run that was ended early.
- `report` writes the tables of docs/soak.md, and the files that a failed run leaves.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
