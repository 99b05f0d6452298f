"""`launch.together`: the same run, with stages beside each other."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

from tests.integration.pipelines import PARAMS, contents, environment, make_pipeline


def called(run: Path, name: str) -> list[tuple[float, float, bool]]:
    """Start and end of the calls of a record of times, and whether they made something."""
    calls = json.loads((run / "timings" / f"{name}.json").read_text())["calls"]
    starts = [datetime.fromisoformat(call["started"]).timestamp() for call in calls]
    return [(start, start + call["seconds"], call["made"]) for start, call in zip(starts, calls, strict=True)]


def turned(folder: Path) -> tuple[Path, str]:
    """The run of a whole loop, and what was said meanwhile."""
    done = subprocess.run(
        ["rla", "run", "--iterations", "1", "--run", "runs/t"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs/t", done.stdout + done.stderr


def test_a_loop_whose_stages_run_together_makes_what_one_after_another_makes(tmp_path: Path) -> None:
    alone, _ = turned(make_pipeline(tmp_path / "alone", iterations=1))
    params = PARAMS + "launch: {together: [judging, training, adapting]}\n"
    together, said = turned(make_pipeline(tmp_path / "together", iterations=1, params=params))
    for note in ("rollout: runs score-steps beside it", "train-policy: runs train-rm and adapt-env beside it"):
        assert note in said
    for name in ("trajectories", "scores", "verdicts", "rewards", "policy", "rm", "candidates"):
        assert contents(together / "1" / name) == contents(alone / "1" / name), name
    # the companion made it, while the other ran; the call in its turn found it complete
    for stage, companion in (("rollout", "score-steps"), ("train-policy", "train-rm"), ("train-policy", "adapt-env")):
        (first,) = called(together, f"1-{stage}")
        made, in_turn = called(together, f"1-{companion}")
        assert made[2] and not in_turn[2] and in_turn[0] > first[1]
    assert not os.path.exists(together / "1/.scores.ahead")
