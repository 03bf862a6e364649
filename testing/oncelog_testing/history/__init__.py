"""Records what the clients of a cluster did and saw, and checks it: exactly once, in order, no torn transactions.

`events`       the recorded events: sends, transactions, reads, offset commits, replica logs, leaders
`recorder`     `History`: clients of any kind and thread record their actions
`violation`    the kinds of violations, and one violation
`records`      checks sends and reads: lost, duplicated, moved, aborted, reordered, skipped
`transactions` checks transactions: torn, or lost as a whole
`processing`   checks what groups make of their inputs: twice, not at all
`offsets`      checks committed offsets: going back, aborted, invented
`replicas`     checks replicas and leaders: different below the high watermark, two leaders
`verdict`      the result as text
`checker`      `violations(history)`: all of these; `verdict(history)`; `check(history)` raises if there are any
"""
