"""Log compaction: of each key only the last record stays (cleanup.policy=compact).

`segment_summary` finds out what `due` needs to decide which log is cleaned next, and which part of it. `compaction`
walks that part with an `offset_map` (`batch_reader` reads it, `batch_retention` and `live_batches` say which batches
stay) and writes a `cleaned_segment` in the place of old ones, in steps that whoever runs them may pause.
"""
