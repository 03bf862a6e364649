"""Records the actions and observations of a cluster's clients, and checks them: exactly once, in order, no torn
transactions.

`events`       the recorded events: sends, transactions, reads, offset commits, replica logs, leaders
`recorder`     `History`: clients of any kind and thread record their actions
`violation`    the kinds of violations, and one violation
`records`      checks sends and reads: lost, duplicated, moved, aborted, reordered, skipped
`transactions` checks transactions: torn, or lost entirely
`processing`   checks the outputs of groups for their inputs: twice, or missing
`offsets`      checks committed offsets: going back, aborted, invented
`replicas`     checks replicas and leaders: different below the high watermark, two leaders
`verdict`      the result as text
`checker`      `violations(history)`: all of these; `verdict(history)`; `check(history)` raises if there are any
"""
