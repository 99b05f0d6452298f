"""What the tests of the core and of all packages share."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.forking import forking_programs
from tests.integration.conftest import rla

__all__ = ["rla"]

# A busy machine is not a failure: no test is about how fast an example runs.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# No test asks a hub for a model: where there is no network, it would try for 23 s.
os.environ["HF_HUB_OFFLINE"] = "1"

# Each of 30 browsers has a driver in JavaScript, which need not be compiled again.
os.environ.setdefault("NODE_COMPILE_CACHE", f"{sys.prefix}/.node")

# Programs that tests start find the helpers of tests, too.
TOP = Path(__file__).parent
PLACES = [str(TOP), *map(str, sorted(TOP.glob("packages/*/tests")))]
sys.path += [place for place in PLACES if place not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs that start in a moment: see tests/forking.py. All processes of a session share it."""
    if given := os.environ.get("FORKING"):
        return Path(given) / "bin"
    base, alone = tmp_path_factory.getbasetemp(), "PYTEST_XDIST_WORKER" not in os.environ
    return forking_programs((base if alone else base.parent) / "forking", owner=os.getpid() if alone else os.getppid())


@pytest.fixture(scope="module")
def forked_python(forking: Path) -> Iterator[None]:
    """What a module's tests start with `sys.executable`, `rla` or `dvc` is forked; calls of these calls are, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(forking / "python"))
        patch.setenv("PATH", str(forking), prepend=os.pathsep)
        yield


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages that the test logs. pytest's own plugin visits the 2,000 loggers of libraries six times a test."""
    messages = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Look for no garbage while modules are imported and tests collected, which would take a third of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave all that is there now out of later searches, which would take half the time of short tests of models, and
    make searches rare.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """The same after each file, for the modules that its tests have imported."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


LONG = {"attack", "docs", "integration", "parity"}  # folders with tests that take longer than others


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files begin first, so that no process of `make test` is alone with one in the end."""
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
