"""`pipelines/slurm/loop.sbatch` run by bash, with stand-ins for what it calls; a manifest of Kubernetes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla.store.layout import resource
from stages import STAGES

SCRIPT = resource("pipelines/slurm/loop.sbatch")
NOTE = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
RUNS_ON = (
    NOTE
    + """
grep SigIgn /proc/$$/status > sigign
trap 'kill $!; echo interrupted >> "$CALLS"; exit 143' TERM
touch running; sleep 300 & wait
"""
)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The folder of the stand-ins, each of which notes how it was called."""
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    (folder / "activate").write_text(f"PATH={folder}:$PATH\n")
    (tmp_path / "calls").touch()
    program(folder, "scontrol", NOTE + '[ "$1" != show ] || printf "n1\\nn2\\nn3\\n"')
    return folder


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{body}\n")
    (folder / name).chmod(0o755)


def begin(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    own = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "4711", "CALLS": str(folder / "calls")}
    own |= {"SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_NODELIST": "n[1-3]", "HOME": str(folder)}
    call = ["bash", str(SCRIPT), *arguments]
    return subprocess.Popen(call, env=os.environ | own | variables, stderr=subprocess.PIPE, text=True)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_loop_gets_all_arguments_and_its_status_is_that_of_the_job(tmp_path: Path, programs: Path) -> None:
    program(programs, "rla", NOTE + "exit 2")
    job = begin(tmp_path, "--iterations", "3", "--params", "my params.yaml")
    job.communicate(timeout=60)
    assert job.returncode == 2
    assert calls(tmp_path) == ["rla run --iterations 3 --params my params.yaml"]


def test_near_the_time_limit_the_stage_is_interrupted_and_the_job_queued_again(tmp_path: Path, programs: Path) -> None:
    program(programs, "rla", RUNS_ON)
    job = begin(tmp_path, "--iterations", "3")
    wait_for_file(tmp_path / "running")
    job.send_signal(signal.SIGUSR1)
    error = job.communicate(timeout=60)[1]
    assert job.returncode == 0 and "back into the queue" in error
    assert calls(tmp_path) == ["rla run --iterations 3", "interrupted", "scontrol requeue 4711"]
    ignored = int((tmp_path / "sigign").read_text().split()[1], 16)
    assert not ignored & 1 << signal.SIGINT - 1  # stages are interrupted by it
    program(programs, "rla", NOTE)
    job = begin(tmp_path, "--iterations", "3", SLURM_RESTART_COUNT="1")
    job.communicate(timeout=60)
    assert job.returncode == 0 and calls(tmp_path)[3:] == ["rla run --iterations 3"]


def test_a_cancelled_job_is_not_queued_again(tmp_path: Path, programs: Path) -> None:
    program(programs, "rla", RUNS_ON)
    job = begin(tmp_path)
    wait_for_file(tmp_path / "running")
    job.terminate()
    job.communicate(timeout=60)
    assert job.returncode == 143 and calls(tmp_path) == ["rla run", "interrupted"]


def test_a_job_does_not_start_again_without_end(tmp_path: Path, programs: Path) -> None:
    program(programs, "rla", RUNS_ON)
    job = begin(tmp_path, SLURM_RESTART_COUNT="2", RESTARTS="2")
    wait_for_file(tmp_path / "running")
    job.send_signal(signal.SIGUSR1)
    error = job.communicate(timeout=60)[1]
    assert job.returncode == 1 and "started again 2 times" in error and "scontrol" not in "".join(calls(tmp_path))


# With a slow `kill` the loop has ended before the signal is handled.
@pytest.mark.parametrize("kill", ["builtin kill $@", "builtin kill $@; local s=$?; sleep 0.3; return $s"])
def test_a_loop_that_fails_by_itself_near_the_limit_is_not_queued_again(
    tmp_path: Path, programs: Path, kill: str
) -> None:
    program(programs, "rla", "trap 'builtin kill $!; exit 2' TERM\ntouch running; sleep 300 & wait")
    job = begin(tmp_path, **{"BASH_FUNC_kill%%": f"() {{ {kill}; }}"})
    wait_for_file(tmp_path / "running")
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=60)
    assert job.returncode == 2 and calls(tmp_path) == []


def test_ray_runs_on_all_nodes_with_a_private_token(tmp_path: Path, programs: Path) -> None:
    # srun of n tasks brings n nodes into the cluster; `ray status` lists them
    program(
        programs,
        "srun",
        NOTE + r'grep -o "ntasks=." <<<"$*" | tr -dc 123 >> nodes; trap "kill \$!" TERM; sleep 300 & wait',
    )
    program(programs, "ray", 'for one in $(fold -w1 nodes); do for i in $(seq $one); do echo " 1 node_x"; done; done')
    program(programs, "rla", NOTE + 'stat -c %a "$RAY_AUTH_TOKEN_PATH" >> "$CALLS"; echo "$RAY_ADDRESS" >> "$CALLS"')
    job = begin(tmp_path, RLA_RAY="1", RAY_HEAD="10.0.0.1")
    error = job.communicate(timeout=120)[1]
    assert job.returncode == 0, error
    _, head, others, *rest = calls(tmp_path)
    assert "--nodelist=n1 ray start --block --num-cpus=2 --head --node-ip-address=10.0.0.1 --port=24711" in head
    assert "--nodes=2 --ntasks=2" in others and others.endswith(
        "--exclude=n1 ray start --block --num-cpus=2 --address=10.0.0.1:24711"
    )
    assert rest == ["rla run", "600", "10.0.0.1:24711"]
    assert list((tmp_path / ".rla-cluster").iterdir()) == []  # the token is gone


def images(node: Any) -> list[str]:
    """The images that a manifest names, in order."""
    if isinstance(node, dict):
        return [value for key, value in node.items() if key == "image"] + images(list(node.values()))
    return [image for item in node for image in images(item)] if isinstance(node, list) else []


def assert_volumes_exist(text: str) -> None:
    """Every volume that a container of the manifest mounts is one of its pod's."""
    mounted = re.findall(r"- \{name: (\w+), mountPath", text)
    assert mounted and all(f"- name: {name}" in text for name in mounted)


def test_each_pod_of_an_indexed_job_makes_the_slice_of_its_index(tmp_path: Path, programs: Path) -> None:
    text = resource("pipelines/kubernetes/slices.yaml").read_text()
    assert_volumes_exist(text)
    job = yaml.safe_load(text)
    assert images(job) == ["SET-YOUR-IMAGE"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    count = job["spec"]["completions"]
    assert job["spec"]["completionMode"] == "Indexed" and container["env"] == [{"name": "SLICES", "value": str(count)}]
    program(programs, "rla", NOTE)
    for index in range(count):
        own = {"PATH": f"{programs}:{os.environ['PATH']}", "SLICES": str(count), "CALLS": str(tmp_path / "calls")}
        subprocess.run(container["command"], env=own | {"JOB_COMPLETION_INDEX": str(index)}, check=True)
    called = [call.split() for call in calls(tmp_path)]
    assert [call[-1] for call in called] == ["1/4", "2/4", "3/4", "4/4"]
    assert {call[1] for call in called} <= {stage.name for stage in STAGES}
