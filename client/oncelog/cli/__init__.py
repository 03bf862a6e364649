"""The `oncelog` command: topics, produce, consume here; serve and dump come from the broker as entry points.

`main` finds commands by name and loads only the one that runs. `offsets`, `text_records` and `json_records` are pure;
`running` turns errors into messages and exit codes; `output` prints tables.
"""
