"""The soak: clients of every kind work on three brokers while one fault after another strikes.

plan        from a seed to the faults, their victims and their times; pure
stage       three brokers and an ensemble, with the proxies between them
faults      how each fault strikes, and how it is healed
progress    when each client made progress, and the stalls in between
writers     idempotent producers that write the lines
pipelines   consume-process-produce: the common part of both libraries; `our_pipeline`, `librdkafka_pipeline`
readers     consumers without a group, of committed records and of all records
members     groups whose members come and go
streams     Kafka Streams, whose instances are killed
observers   leaders and epochs, committed offsets, as brokers report them; resources of their processes
run         the whole run, to the verdict of the checker
files       the contents of the brokers' files after a run that was ended early
report      the tables of docs/soak.md, and the files that a failing run leaves
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
