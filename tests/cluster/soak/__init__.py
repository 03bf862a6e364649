"""The long proof: clients of every kind at work on three brokers while one fault after another strikes.

plan        from a seed to the faults, their victims and their times; pure
stage       three brokers and an ensemble, and what is between them
faults      how each fault strikes, and how it is healed
progress    when each client got on, and the stalls in between
writers     idempotent producers that write the lines
pipelines   consume-process-produce: what both libraries' have in common; `our_pipeline`, `librdkafka_pipeline`
readers     consumers without a group, of what is committed and of everything
members     groups whose members come and go
streams     Kafka Streams, whose instances are killed
observers   who leads in which epoch, and what is committed, as brokers say; what their processes use
run         all of it, to the verdict of the checker
files       what the brokers' files say of a run that was ended before
report      the tables of docs/soak.md, and what a failing run leaves
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
