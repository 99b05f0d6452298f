"""Inspect's viewer in a real browser, on a run whose texts all try to act and on one that goes on."""

from __future__ import annotations

import shutil
import socket
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from rla_study.viewing.inspect_folder import Following, export_new, write_site
from rla_study.viewing.inspect_server import viewer

from study_tests.browser.test_report_page import unharmed
from tests.browser.chromium import Page, served
from tests.browser.hostile_run import ATTACKS, hostile_run
from tests.unit.builders import configured

pytestmark = pytest.mark.skipif(find_spec("inspect_ai") is None, reason="the inspect extra is not installed")
CONFIG = configured()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A static site of a hostile run without screenshots (iteration 1) and with some (iteration 2)."""
    top = tmp_path_factory.mktemp("site")
    run = hostile_run(top / "run")
    shutil.copytree(hostile_run(top / "other", pictures=True) / "1", run / "2")
    export_new(run, CONFIG, run / "inspect")
    write_site(run / "inspect", top / "made")
    assert str(top) not in (top / "made/index.html").read_text()
    with served(top / "made") as address:
        yield address


def asked_elsewhere(page: Page, site: str) -> list[str]:
    return [one for one in page.requests if not one.startswith((site, "data:", "blob:"))]


def open_episode(page: Page, site: str, iteration: int) -> None:
    page.open(site)
    for listed in ("iteration 1", "iteration 2"):  # they come one by one, and each moves the others
        page.wait_text(listed)
    page.wait_quiet()  # the viewer still reads the logs, and a click meanwhile may go astray
    page.click(f"iteration {iteration}")
    page.wait_text(f"iteration-000{iteration}.eval")  # the list of logs has a row with "turn" of its own
    page.wait_text("2 rows")
    page.wait_quiet()
    page.click("turn")  # the limit that ended the second episode
    page.wait_text("vote_1:")


@pytest.mark.parametrize("iteration", [1, 2])
def test_an_episode_is_found_by_clicking_and_no_text_in_it_acts(page: Page, site: str, iteration: int) -> None:
    try:
        open_episode(page, site, iteration)
    except TimeoutError as hung:  # now and then the viewer (0.3.285) loads a log forever; a person reloads the page
        if "Loading log" not in page.text():
            raise
        warnings.warn(f"Inspect's viewer hung: {hung}", stacklevel=1)
        open_episode(page, site, iteration)
    said = page.text()
    assert ATTACKS[0] in said and ATTACKS[1] in said and "advantage:" in said
    for tab in ("SCORING", "INFO", "MESSAGES"):
        page.click(tab)
        page.wait_text(tab)
        assert page.run("document.querySelectorAll('a[href*=\"127.0.0.1:9/\"], strong').length") == 0
    assert unharmed(page) and asked_elsewhere(page, site) == []
    assert page.run("document.querySelectorAll('iframe, base, a[href^=\"javascript\"], img[onerror]').length") == 0
    assert page.run("document.querySelectorAll('img[src^=\"http://127.0.0.1:9\"]').length") == 0


def test_screenshots_are_shown_where_there_are_some(page: Page, site: str) -> None:
    page.open(f"{site}/#/tasks/iteration-0002.eval")
    page.click("turn")
    page.wait_text("vote_1:")
    assert page.run("document.querySelectorAll('img[src^=\"data:image/png\"]').length") > 0


def test_an_iteration_that_comes_later_appears_in_the_open_page(page: Page, tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "run", text="x")
    shutil.copytree(run / "1", run / "2")  # the only log would be opened itself
    look = Following(run=run, config=CONFIG, folder=run / "inspect", say=lambda said: None)
    look()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with viewer(run / "inspect", port) as server:
        page.open(f"http://127.0.0.1:{port}")
        page.wait_text("iteration 2")
        shutil.copytree(run / "1", run / "3")
        new = look()
        assert new is not None
        server.refresh(new)
        page.wait_text("iteration 3")
    assert server.process.poll() is not None
