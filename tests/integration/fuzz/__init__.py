"""A structured fuzzer: it sends plausible requests of every API and version, each with one unexpected field or value.

- `world` has the names that requests use.
- `plausible` builds requests from the declarations.
- `encoder` encodes requests, also with wrong lengths.
- `twists` makes the unexpected changes, and `odd_batches` creates unexpected record batches.
- `cases` yields one request after another from a seed.
- `run` sends the requests and checks the broker.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
