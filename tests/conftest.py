"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure: no test is about how fast an example runs.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
