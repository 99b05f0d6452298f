"""A disk that is full while a stage writes: one error and exit code 2, finished groups stay, a rerun completes.

The system's limit on the size of a file stands for the disk: it refuses the largest part in the middle of the write.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import Rla
from tests.integration.pipelines import contents
from tests.integration.test_stage_kill import STAGES


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_disk(stage: str, rla: Rla, tmp_path: Path) -> None:
    one_by_one = ("--run", "r", "--seed", "1", "--set", "rollout.concurrency=1")  # its largest parts are not the first
    for name in STAGES if stage == "score-steps" else ("rollout",):
        assert rla(name, *one_by_one)[0] == 0
    calm = tmp_path / "r/1" / STAGES[stage]
    sizes = [path.stat().st_size for path in sorted(calm.glob("part-*"))]
    refused = sizes.index(max(sizes))

    with largest_file(max(sizes) - 1):
        code, _, said = rla(stage, *one_by_one, "--out", "full")
    assert code == 2 and "Traceback" not in said
    (error,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert f"full/part-{refused:05d}.parquet: cannot be written (" in error and "call the command again" in error
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "full").glob("part-*")}
    assert len(kept) == refused > 0  # the groups before it, and nothing half-written
    assert not list((tmp_path / "full").glob(".*"))

    assert rla(stage, *one_by_one, "--out", "full")[0] == 0
    assert contents(tmp_path / "full") == contents(calm)
    assert all((tmp_path / "full" / name).stat().st_mtime_ns == time for name, time in kept.items())
