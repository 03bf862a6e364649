"""The pages and modules that are generated from the code.

`make reference` writes them, tests/unit/test_reference.py holds them to it.

`pages` lists them all; each page is stored in docs/, so that it can be read on a code host, too. `markdown` has the
functions that write them.

- `rules`: the meaning of exactly once, rule by rule, each with its tests (`rules.toml` has the texts)
- `configuration`: the keys of brokers, topics and clients
- `spark_options`: the treatment of each option of Spark's Kafka connector
- `commands`: `oncelog` and all below it
- `typed_options`: the module of the client that gives its options types
- `apis`: the protocol's APIs and versions
- `tools`: the behaviour of Apache Kafka's command line tools, as tests/interop/tools.toml lists it
- `python_api`: the client, the errors, the pytest plugin
"""
