"""Settings for all tests."""

from hypothesis import settings
from tests.support.examples import SOAK_EXAMPLES

# The same examples in every run: a failure in CI is the failure at the desk. No deadline: the machine may be slow.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
# Other examples in every run, and more; a failure prints what repeats it.
settings.register_profile("soak", derandomize=False, deadline=None, print_blob=True, max_examples=SOAK_EXAMPLES)
settings.load_profile("ci")
