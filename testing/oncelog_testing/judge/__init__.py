"""Judges histories over HTTP, for tests in other languages: the command `oncelog judge`.

- `document` (pure) converts a history from JSON, and a verdict to JSON.
- `http_judge` serves POST /verdict.
- `command` is `oncelog judge`.
"""
