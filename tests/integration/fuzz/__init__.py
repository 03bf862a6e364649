"""A structured fuzzer: plausible requests of every API and version, with one thing about each that nobody expects.

`world` what the requests speak of, `plausible` requests from the declarations, `encoder` their bytes, also where they
lie, `twists` the unexpected, `odd_batches` the same for record batches, `cases` one after the other from a seed, `run`
sends them and holds the broker to what must be true.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
