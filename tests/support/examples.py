"""The number of examples of a property test: few and fixed ones in `make test`, many and new ones in `make soak`."""

from hypothesis import settings

USUAL_EXAMPLES = 100
"""The default of Hypothesis, for tests that set no number."""
SOAK_EXAMPLES = 2000


def examples(count: int, *, of: int = 0) -> settings:
    """Settings with `count` examples in `make test`; with other profiles more or fewer, as their own number says.

    A test whose examples are dear has `@examples(25)`; further settings go on top: `settings(examples(60), ...)`.
    Where `make test` is to have but some `of` so many, the other profiles count from those.
    """
    most = settings().max_examples
    return settings(max_examples=count if most == USUAL_EXAMPLES else max(1, (of or count) * most // USUAL_EXAMPLES))
