"""Hostile clients: each does one thing that could stop or fill a broker, while an honest client must not notice.

`client` what a hostile client is, `scene` the broker it meets, `clients` the list of them all; their deeds by kind in
`pipelined`, `slow_readers`, `slow_writers`, `tagged_fields`, `decompression`, `repeated_names`, `long_lists`,
`uploads`, `patterns`, `groups`, `many_partitions` and `logins`; `run` measures one, `verdict` says what is wrong with
the measurement, `table` is the page of them all.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
