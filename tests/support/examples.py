"""The number of examples of a property test: few and always the same in `make test`, many new ones in `make soak`."""

from hypothesis import settings

USUAL_EXAMPLES = 100
"""The default number of examples of Hypothesis, for tests that set no number."""
SOAK_EXAMPLES = 2000


def examples(count: int, *, of: int = 0) -> settings:
    """Return Hypothesis settings: `count` examples in `make test`, and proportionally more or fewer in a profile with
    another default number.

    A test with expensive examples uses `@examples(25)`; `settings(examples(60), ...)` adds further settings.
    If `of` is given, profiles other than that of `make test` scale the number `of` in place of `count`.
    """
    most = settings().max_examples
    return settings(max_examples=count if most == USUAL_EXAMPLES else max(1, (of or count) * most // USUAL_EXAMPLES))
