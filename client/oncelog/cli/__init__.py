"""The `oncelog` command: what is here talks to brokers; serve and dump come from the broker as entry points.

main.py            finds a command by its name, and loads that one only
topics.py, groups.py, txns.py, explain.py, produce.py, consume.py  the commands
options.py         options that several of them share     targets.py   TOPIC[:PARTITION]
offsets.py         (pure) EARLIEST, -10, 1h ...           reset_plan.py  (pure) where a group is to be reset to
text_records.py, json_records.py  (pure) records as lines
standard_input.py  reading without blocking the loop      output.py    tables, plain lines, JSON
running.py         errors to messages and exit codes      streams.py   standard streams that are closed, or full
"""
