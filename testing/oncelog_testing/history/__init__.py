"""What the clients of a cluster did and saw, and whether that may be: exactly once, in order, nothing torn.

`events`        what is noted: sends, transactions, reads, commits of offsets, logs of replicas, who led
`recorder`      `History`: clients of any kind and thread note in it what they do
`violation`     the kinds of violation, and what one of them says
`records`       of sends and reads: lost, twice, moved, aborted, out of order, skipped
`transactions`  of transactions with their records and offsets: torn, or lost as a whole
`processing`    of what groups make of their inputs: twice, not at all
`offsets`       of committed offsets: going back, aborted, invented
`replicas`      of replicas and leaders, for who sees into brokers: different below the high watermark, two leaders
`verdict`       what is wrong, for a reader
`checker`       `violations(history)`: all of these; `verdict(history)`; `check(history)` raises if there are any
"""
