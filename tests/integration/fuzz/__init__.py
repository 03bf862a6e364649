"""A structured fuzzer: it sends plausible requests of every API and version, each with one unexpected field or value.

`world` has the names that requests use, `plausible` builds requests from the declarations, `encoder` encodes them, also
with wrong lengths, `twists` makes the unexpected changes, `odd_batches` the same for record batches, `cases` yields one
after the other from a seed, `run` sends them and checks the broker.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
