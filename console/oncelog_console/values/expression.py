"""A search in values by an expression of JSONPath (RFC 9535): `$.amount > 10 && $.item == "tea"`.

The expression has the syntax of a filter in JSONPath. `$` and `@` both mean the value of the record.
"""

from __future__ import annotations

from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError
from jsonpath.selectors import Filter, FilterContext

BEGINNINGS: Final = ("$", "@", "!", "(")
"""The first characters of an expression."""
MAX_EXPRESSION_CHARACTERS: Final = 500

_ENVIRONMENT: Final = JSONPathEnvironment(strict=True)


class Expression:
    """A parsed expression. Use it only in a worker process, because its run time depends on text and value."""

    def __init__(self, text: str) -> None:
        """Parse the text. Raises ValueError with the reason why the text is not an expression."""
        if len(text) > MAX_EXPRESSION_CHARACTERS:
            raise ValueError(f"an expression has {MAX_EXPRESSION_CHARACTERS} characters at most")
        try:
            query = _ENVIRONMENT.compile(f"$[?{text}]")
        except JSONPathError as error:
            raise ValueError(f"{text!r} is not an expression such as $.amount > 10: {error.args[0]}") from None
        except RecursionError:
            raise ValueError("the expression is nested too deeply") from None
        selector = _only_selector(query)
        if selector is None:
            raise ValueError(f"{text!r} is not one expression, such as $.amount > 10")
        self._filter = selector.expression

    def matches(self, value: Any) -> bool:
        """Return whether the expression is true for a value as `json.loads` returns it. A value of another structure
        does not match.
        """
        try:
            return bool(self._filter.evaluate(FilterContext(env=_ENVIRONMENT, current=value, root=value)))
        except (JSONPathError, RecursionError):
            return False


def _only_selector(query: Any) -> Filter | None:
    """Return the filter of a query that consists of one filter; None for other queries."""
    if not isinstance(query, JSONPath) or len(query.segments) != 1:
        return None
    selectors = query.segments[0].selectors
    return selectors[0] if len(selectors) == 1 and isinstance(selectors[0], Filter) else None
