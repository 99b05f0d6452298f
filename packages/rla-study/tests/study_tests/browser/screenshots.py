"""Pictures of a run's pages for the documentation: `screenshots RUN=runs/name`. Needs Chromium and the extra."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from PIL import Image
from rla_study.showing.episodes import episode_frame, played_in, played_iterations
from rla_study.viewing.command import exported_folder
from rla_study.viewing.inspect_folder import export_new, write_site

from rla.cli.app import run as call
from rla.envs.registry import load_config
from tests.browser.chromium import Page, browser_page, served

WIDTH, HEIGHT = 1100, 720
COLOURS = 64  # text and curves need no more
PICTURES = ("report", "report-changes", "episode", "viewer-table", "viewer-episode")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/alfworld-tiny"))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--out", type=Path, default=Path("docs/screenshots"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    config = load_config(options.params, [])
    last = played_iterations(options.run, config)[-1]
    with browser_page(WIDTH, HEIGHT) as page:
        report_pictures(page, options.run, options.out)
        episode_picture(page, options.run, options.params, last, options.out)
        folder = exported_folder(options.run)
        export_new(options.run, config, folder)
        task = sorted(episode_frame(played_in(options.run, config, last))["task_id"])[0]
        with tempfile.TemporaryDirectory() as site:
            write_site(folder, Path(site) / "made")  # it does not say where the run lies
            with served(Path(site) / "made") as address:
                viewer_pictures(page, address, last, task, options.out)
    for name in PICTURES:
        shrink(options.out / f"{name}.png")


def report_pictures(page: Page, run: Path, out: Path) -> None:
    page.open(run / "report/report.html")
    page.screenshot(out / "report.png")
    page.run("document.querySelector('#tasks')?.scrollIntoView()")
    page.screenshot(out / "report-changes.png")


def episode_picture(page: Page, run: Path, params: Path, last: int, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shown = Path(folder) / "disputed.html"
        words = ["show", "--run", str(run), "--params", str(params), "--iteration", str(last), "--disputed"]
        if call([*words, "--count", "5", "--html", str(shown)]):
            raise SystemExit(2)
        page.open(shown)
        page.screenshot(out / "episode.png")


def viewer_pictures(page: Page, address: str, last: int, task: str, out: Path) -> None:
    page.open(f"{address}/#/tasks/iteration-{last:04}.eval")
    page.wait_text(task)
    page.screenshot(out / "viewer-table.png")
    page.click(task)
    page.wait_text("vote_1:")
    page.screenshot(out / "viewer-episode.png")


def shrink(path: Path) -> None:
    """A palette instead of true colours: a third of the bytes."""
    with Image.open(path) as found:
        found.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
