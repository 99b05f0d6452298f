"""What the tests of the core and of all packages share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.integration.conftest import rla

__all__ = ["rla"]

# A busy machine is not a failure: no test is about how fast an example runs.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# No test asks a hub for a model: where there is no network, it would try for 23 s.
os.environ["HF_HUB_OFFLINE"] = "1"

# Programs that tests start find the helpers of tests, too.
TOP = Path(__file__).parent
PLACES = [str(TOP), *map(str, sorted(TOP.glob("packages/*/tests")))]
sys.path += [place for place in PLACES if place not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, *filter(None, [os.environ.get("PYTHONPATH")])])

LONG = {"attack", "docs", "integration", "parity"}  # folders with tests that take longer than others


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files begin first, so that no process of `make test` is alone with one in the end."""
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
