"""`rla show` on a run whose environment shows pictures."""

from __future__ import annotations

from pathlib import Path

from rla.cli.app import run
from tests.integration.test_pictures_loop import folder, trajectories

__all__ = ["folder"]


def test_show_prints_the_pictures_of_a_step(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "episode.html"
    task = trajectories()[0]["task_id"]
    call_show = ["show", "--run", "r", "--iteration", "1", "--task", task, "--html", str(page)]
    assert run(call_show) == 0
    shown = [screen for row in trajectories() if row["task_id"] == task for screen in row["screens"]]
    assert page.read_text().count("data:image/png;base64,iVBOR") == sum(map(len, shown))  # that of the end, too
