"""What the broker tells of itself: `logs` (structured, quiet by default), `log_writer` (the thread they leave by)."""
