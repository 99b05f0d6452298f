"""Pages are about the packages, too: where one of them is not installed, their tests are skipped and say so."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from docs.generate.source import PACKAGES

MISSING = [folder.name for folder in PACKAGES if find_spec(folder.name.replace("-", "_")) is None]


@pytest.fixture(autouse=True, scope="session")
def packages() -> None:
    if MISSING:
        pytest.skip(f"the pages are about {', '.join(MISSING)}, which {'is' if len(MISSING) == 1 else 'are'} missing")
