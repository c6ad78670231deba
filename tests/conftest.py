"""What every test run shares."""

from __future__ import annotations

from hypothesis import settings

# One seed per run, nothing written beside the code: a failure replays by running the test again.
settings.register_profile("watersmeet", deadline=None, derandomize=True, database=None)
settings.load_profile("watersmeet")
