"""Log compaction: keeps only the last record of each key (cleanup.policy=compact).

`segment_summary` collects the facts from which `due` decides which log, and which part of it, is cleaned next.
`compaction` walks that part with an `offset_map` (`batch_reader` reads it, `batch_retention` and `live_batches` decide
which batches remain) and writes a `cleaned_segment` in place of old ones, in steps between which its caller may pause.
"""
