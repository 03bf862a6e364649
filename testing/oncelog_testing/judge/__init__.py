"""Judges histories over HTTP, for tests in other languages: `oncelog judge`.

document.py     (pure) a history as JSON, and a verdict as JSON
http_judge.py   answers POST /verdict
command.py      `oncelog judge`
"""
