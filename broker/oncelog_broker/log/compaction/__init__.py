"""Log compaction: keeps only the last record of each key (cleanup.policy=compact).

`segment_summary` collects facts about segments. From these facts `due` decides which log is cleaned next, and which
part of that log. `compaction` rewrites the chosen part of the log with the help of an `offset_map`: `batch_reader`
reads the batches,
`batch_retention` and `live_batches` decide which batches remain, and a `cleaned_segment` replaces the old segments.
Compaction is a generator of small steps (slices of work), between which its caller may pause.
"""
