"""Records the actions and observations of a cluster's clients, and checks them: exactly once, in order, no torn
transactions.

- `events` has the recorded events: sends, transactions, reads, offset commits, replica logs, leaders.
- `recorder` has `History`, in which clients of any kind and thread record their actions.
- `violation` has the kinds of violations, and one violation.
- `records` checks sends and reads: lost, duplicated, moved, aborted, reordered or skipped records.
- `transactions` checks transactions: torn, or lost entirely.
- `processing` checks a group's outputs for its inputs: duplicated, or missing.
- `offsets` checks committed offsets: going back, aborted, or invented.
- `replicas` checks replicas and leaders: different records below the high watermark, or two leaders.
- `verdict` is the result as text.
- `checker` runs all checks: `violations(history)`, `verdict(history)`, and `check(history)`, which raises an error if
  there are violations.
"""
