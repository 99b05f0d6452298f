"""A dvc.lock that was cut anywhere is whole again, and nothing before the cut is lost."""

from pathlib import Path

import yaml

from rla.pipeline.dvc_lock import mend, repair, whole

LOCK = """schema: '2.0'
stages:
  rollout@1:
    cmd: rla rollout
    deps:
    - path: runs/0/pool
      hash: md5
      md5: 5fbf2ac0413714a3f18408db27dbe08d.dir
      size: 10
      nfiles: 1
    params:
      params.yaml:
        seed: 0
    outs:
    - path: runs/1/trajectories
      hash: md5
      md5: 6fbf2ac0413714a3f18408db27dbe08d.dir
      size: 10
      nfiles: 1
  score-steps@1:
    cmd: rla score-steps
    outs:
    - path: runs/1/scores
      hash: md5
      md5: 7fbf2ac0413714a3f18408db27dbe08d.dir
      size: 12
      nfiles: 1
"""


def test_a_whole_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert not repair(path)
    path.write_text(LOCK)
    assert not repair(path)
    assert path.read_text() == LOCK


def test_every_cut_is_mended_and_keeps_the_entries_before_it(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    second = LOCK.index("  score-steps@1:")
    for length in range(len(LOCK)):
        path.write_text(LOCK[:length])
        repair(path)
        assert not path.exists() or whole(path.read_text())
        if length >= second:
            assert "rollout@1" in yaml.safe_load(path.read_text())["stages"], length


def test_an_empty_rwlock_goes_and_a_readable_one_stays(tmp_path: Path) -> None:
    users = tmp_path / ".dvc/tmp/rwlock"
    users.parent.mkdir(parents=True)
    users.write_text("{}")
    mend(tmp_path)
    assert users.exists()
    users.write_text("")
    mend(tmp_path)
    assert not users.exists()
