"""Records what the clients of a cluster did and observed, and checks the recorded history: each record exists exactly
once, records are in order, and no transaction is torn (partly visible).

- `events` has the recorded events: sends, transactions, reads, offset commits, replica logs, leaders.
- `recorder` has `History`, in which clients of any kind and thread record their actions.
- `violation` has the kinds of violations, and one violation.
- `records` compares sends with reads, and finds lost, duplicated, moved, aborted, reordered or skipped records.
- `transactions` finds transactions that are torn (partly visible) or lost entirely.
- `processing` finds inputs of a group whose output is duplicated or missing.
- `offsets` finds committed offsets that went back, that belong to an aborted transaction, or that nobody committed.
- `shares` finds records of share groups that were lost, or delivered after they were accepted.
- `replicas` finds replicas with different records below the high watermark, and epochs with two leaders.
- `verdict` is the result as text.
- `checker` runs all checks: `violations(history)`, `verdict(history)`, and `check(history)`, which raises an error if
  there are violations.
"""
