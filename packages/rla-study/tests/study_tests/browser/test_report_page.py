"""`report.html` in a real browser: it stands alone, its links work, and no text in it acts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run as call
from tests.browser.chromium import Page
from tests.browser.hostile_run import ATTACKS, hostile_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = hostile_run(tmp_path_factory.mktemp("report") / "run", pictures=True)
    assert call(["report", "--run", str(run)]) == 0
    return run / "report/report.html"


def unharmed(page: Page) -> bool:
    """Nothing that a text asked for has happened."""
    return page.run("window.owned") is None and not page.dialogs and not page.errors


def test_the_page_stands_alone_and_shows_text_as_text(page: Page, report: Path) -> None:
    page.open(report)
    assert [one for one in page.requests if not one.startswith("data:image/png")] == [report.as_uri()]
    assert unharmed(page)
    assert "Most disputed steps of iteration 1" in page.text()
    assert "\x1b" not in page.run("document.documentElement.outerHTML")
    for attack in (ATTACKS[0], ATTACKS[1], ATTACKS[6]):
        assert attack in page.run("document.body.textContent")
    assert page.run("document.querySelectorAll('script, iframe, base, a[href^=javascript]').length") == 0


def test_its_links_lead_to_its_sections(page: Page, report: Path) -> None:
    page.open(report)
    assert page.run("[...document.querySelectorAll('a')].every(a => document.querySelector(a.getAttribute('href')))")
    page.click("Tables")
    page.wait(lambda: page.run("location.hash") == "#tables", "the section")
    summary = page.run("document.querySelector('#tables summary').innerText")
    assert page.run("document.querySelector('#tables details').open") is False
    page.click(summary)
    page.wait(lambda: page.run("document.querySelector('#tables details').open"), "the table to unfold")


def test_screenshots_are_drawn(page: Page, report: Path) -> None:
    page.open(report)
    assert page.run("document.images.length > 0 && [...document.images].every(i => i.naturalWidth === 1)")
