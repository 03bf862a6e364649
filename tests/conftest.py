"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run: a failure in CI is the failure at the desk. No deadline: the machine may be slow.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
