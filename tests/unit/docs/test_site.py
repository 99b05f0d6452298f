"""The site builds without a warning: no link is broken, no page is lost, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.docs.markdown_pages import DOCS, TOP

LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]*)|<link rel="stylesheet" href="(https?:[^"]*)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],  # --quiet counts no warnings
        cwd=TOP,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(TOP / "docs").with_suffix(".html") for path in (TOP / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {match for path in site.rglob("*.html") for match in LOADED.findall(path.read_text())}
    assert not found
    assert "@import" not in (site / "site.css").read_text()


@pytest.mark.parametrize("name", ["results", "tool", "gui", "benchmarks"])
def test_a_page_of_results_names_its_records_or_says_that_there_are_none(name: str) -> None:
    page = (DOCS / f"results/{name}.md").read_text()
    records = set(re.findall(r"records/([\w-]+\.json\.gz)", page))
    assert all((DOCS / "results/records" / record).is_file() for record in records)
    assert records or "No records" in page


def test_the_readme_says_what_its_figure_rests_on() -> None:
    """The judge was taught by the solver, a weak one that pays costs, and the rooms were once trained in."""
    reached = (TOP / "README.md").read_text().partition("## What it reaches")[2].partition("\n## ")[0]
    for said in ("solver teaches the judge", "88%", "loses 9 to 15 points", "Earlier runs"):
        assert said in " ".join(reached.split()), said
