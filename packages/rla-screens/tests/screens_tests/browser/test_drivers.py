"""How browsers are started and ended, without one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rla_screens.browser.driver import PageLost
from rla_screens.browser.drivers import RunningBrowser, launched_browser
from rla_screens.screens.starts import process_start

pytest.importorskip("playwright", reason="needs the browser extra")


class Nameless:
    """A browser that starts, and names no process of its own."""

    closed = False

    async def new_browser_cdp_session(self) -> Nameless:
        return self

    async def send(self, method: str) -> dict[str, Any]:
        return {"processInfo": [{"type": "GPU", "id": 1}]}

    async def close(self) -> None:
        self.closed = True


def test_a_browser_that_does_not_say_which_process_it_is_is_closed() -> None:
    made = Nameless()

    async def launch(**_: object) -> Nameless:
        return made

    playwright = cast(Any, SimpleNamespace(chromium=SimpleNamespace(launch=launch)))
    with pytest.raises(PageLost, match="does not say which process it is"):
        asyncio.run(launched_browser(playwright, "chromium", (), longest_s=30.0))
    assert made.closed


@pytest.mark.parametrize(("later", "ended_by"), [(0, signal.SIGKILL), (1, signal.SIGTERM)])
def test_another_process_of_the_same_id_is_not_killed(later: int, ended_by: signal.Signals) -> None:
    """It has started later than the browser."""
    with subprocess.Popen(["sleep", "60"]) as process:
        RunningBrowser(cast(Any, None), process.pid, process_start(process.pid) - later).kill()
        process.terminate()
        assert process.wait() == -ended_by
