"""How many examples a property test tries: few and the same in `make test`, many and new ones in `make soak`."""

from hypothesis import settings

USUAL_EXAMPLES = 100
"""Hypothesis' own number, for a test that says nothing."""
SOAK_EXAMPLES = 2000


def examples(count: int) -> settings:
    """Settings with `count` examples in `make test`; with other profiles more or fewer, as their own number says.

    A test whose examples are dear has `@examples(25)`; further settings go on top: `settings(examples(60), ...)`.
    """
    return settings(max_examples=max(1, count * settings().max_examples // USUAL_EXAMPLES))
