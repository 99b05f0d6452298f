"""The site builds without a warning: no link is broken, no page is lost, and nothing is loaded from elsewhere."""

from __future__ import annotations

import gzip
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate.modules import PAGES
from docs.generate.site import with_site_links, write_sources
from rla.store.layout import SHARD_KINDS
from stages import STAGES
from tests.unit.docs.markdown_pages import DOCS, TOP

LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]*)|<link rel="stylesheet" href="(https?:[^"]*)')


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages and configuration, as Zensical reads them."""
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


@pytest.fixture(scope="module")
def site(sources: Path) -> Path:
    pytest.importorskip("zensical", reason="needs the dev extra")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(sources / "mkdocs.yml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sources / "site"


def test_the_reference_has_a_page_for_each_command_shard_and_group_of_modules(sources: Path) -> None:
    reference = sources / "docs/reference"
    commands = {f"commands/{spec.name}.md" for spec in STAGES}
    shards = {f"shards/{kind}.md" for kind in SHARD_KINDS.values()}
    found = {path.relative_to(reference).as_posix() for path in reference.rglob("*.md")}
    assert commands | shards | {f"modules/{name}.md" for name in PAGES} <= found
    assert "| `env.max_steps` | integer, 1 or more |" in (reference / "parameters.md").read_text()


def test_links_to_sources_lead_to_the_pages_that_are_made_from_them(sources: Path) -> None:
    assert "[`rla rollout`](../reference/commands/rollout.md)" in (sources / "docs/guide/runs.md").read_text()
    assert "[security](SECURITY.md)" in (sources / "docs/index.md").read_text()
    assert "(guide/desktop.md#security)" in (sources / "docs/SECURITY.md").read_text()


def test_a_link_to_nothing_is_refused() -> None:
    places = {"docs/guide/runs.md": "guide/runs.md"}
    assert with_site_links("[`x`](runs.md#a)", "docs/guide/runs.md", places) == "[`x`](runs.md#a)"
    with pytest.raises(ValueError, match=r"docs/guide/runs\.md: its link \.\./none\.png leads to nothing"):
        with_site_links("![x](../none.png)", "docs/guide/runs.md", places)


def test_a_page_that_the_navigation_lacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs.generate.site.site_places", lambda: {"docs/site.css": "lost.md"})
    monkeypatch.setattr("docs.generate.site.reference_pages", dict)
    with pytest.raises(ValueError, match=r"its nav and the pages differ: .*lost\.md"):
        write_sources(tmp_path)


def test_every_page_is_there(sources: Path, site: Path) -> None:
    pages = {path.relative_to(sources / "docs").with_suffix(".html") for path in (sources / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {match for path in site.rglob("*.html") for match in LOADED.findall(path.read_text())}
    assert not found
    assert "@import" not in (site / "site.css").read_text()


@pytest.mark.parametrize("name", ["results", "tool", "gui", "benchmarks", "gpu"])
def test_a_page_of_results_names_its_records_or_says_that_there_are_none(name: str) -> None:
    page = (DOCS / f"results/{name}.md").read_text()
    records = set(re.findall(r"records/([\w-]+\.json\.gz)", page))
    assert all((DOCS / "results/records" / record).is_file() for record in records)
    assert records or "No records" in page


def test_the_readme_says_what_its_figure_rests_on() -> None:
    """The models are small, all begin with one start, the judge was taught by the solver, and a weak one costs."""
    for said in ("0.7M parameters", "one warm start", "the solver teaches first", "85%", "loses 9 to 15 points"):
        assert said in reached(), said


def test_the_figures_of_the_readme_are_those_of_the_record() -> None:
    arms = json.loads(gzip.decompress((DOCS / "results/records/ablation-valid-unseen.json.gz").read_bytes()))["arms"]
    full, outcome = (
        [statistics.mean(map(int, "".join(run["evaluations"]["8"].values()))) for run in arms[name]["runs"]]
        for name in ("full", "outcome")
    )
    for said in (f"loop wins {statistics.mean(full):.1%}", f"alone {statistics.mean(outcome):.1%}"):
        assert said in reached(), said
    assert f"{100 * (statistics.mean(full) - statistics.mean(outcome)):+.1f} points" in reached()


def test_the_figures_of_a_real_model_are_those_of_the_record() -> None:
    runs = json.loads((DOCS / "results/records/alfworld-laptop.json").read_text())["runs"]
    page, first = (DOCS / "tutorial/6-a-real-model.md").read_text(), runs["unbalanced"]
    shipped, alone = (runs[name]["evaluation"] for name in ("balanced", "outcomes alone"))
    told = [first["evaluations"]["untrained"], first["evaluations"]["0"], shipped]
    for found in told:
        low, high = (f"{100 * found[f'success_{end}']:.1f}" for end in ("low", "high"))
        assert f"{found['success']:.1%} [{low}, {high}]" in reached()
    again = runs["start made again"]["real_games"]
    rows = [row for name, row in again.items() if "," in name]
    for row in (*told, alone, *first["valid_seen"].values(), *rows):
        low, high = (f"{100 * row[f'success_{end}']:.1f}" for end in ("low", "high"))
        assert f"| {row['success']:.1%} | {low} to {high} |" in page


def reached() -> str:
    """What the README says under "What it reaches", in one line."""
    return " ".join((TOP / "README.md").read_text().partition("## What it reaches")[2].partition("\n## ")[0].split())
