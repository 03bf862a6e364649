"""The messages of the protocol: one module for each API, named as Kafka names it; `headers` precedes them all."""
