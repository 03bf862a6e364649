"""What the broker tells of itself: `logs` (structured, quiet by default)."""
