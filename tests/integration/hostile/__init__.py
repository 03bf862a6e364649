"""Hostile clients: each client does one thing that could block the broker or fill its memory, while an honest client
must not be affected.

- `client` defines a hostile client, and `scene` is the broker that it attacks.
- `clients` lists all hostile clients.
- The attacks are in `pipelined`, `slow_readers`, `slow_writers`, `tagged_fields`, `decompression`, `repeated_names`,
  `long_lists`, `uploads`, `patterns`, `groups`, `many_partitions` and `logins`.
- `run` measures one hostile client, and `verdict` judges the measurement.
- `table` writes the page with all measurements.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
