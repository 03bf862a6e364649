"""Log compaction: keeps only the last record of each key (cleanup.policy=compact).

`segment_summary` collects the facts from which `due` decides which log is cleaned next, and which part of it.
`compaction` walks that part with an `offset_map` (`batch_reader` reads it, `batch_retention` and `live_batches` decide
which batches stay) and writes a `cleaned_segment` in the place of old ones, in steps that its caller may pause.
"""
