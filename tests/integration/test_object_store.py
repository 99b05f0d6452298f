"""Runs by URL against a real S3 server (moto) on the loopback device; two mirrors stand for two machines."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from rla.mirroring.mirror import Mirror
from rla.mirroring.object_store import ObjectStore
from rla.mirroring.urls import mirror_folder
from rla.store.resources import resource
from rla.store.shards import ShardWriter
from rla.training.resume import TrainingProgress
from tests.integration.conftest import Rla
from tests.integration.pipelines import PARAMS, contents, environment, until
from tests.integration.pipelines import run as run_here
from tests.integration.stores import BUCKET, URL, client, s3_server, start_server, stored_files

LOOP = (
    *("make-tasks", "init-model", "warm-start", "rollout", "validate-tasks", "score-steps", "compute-rewards"),
    *("train-policy", "train-rm", "adapt-env", "evaluate"),
)
CHEAP = PARAMS.replace("adaptation: {", "adaptation: {enabled: false, ")  # a proof takes longer than all the rest
REPORTED = "timings/1-report.json"
Machine = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An iteration, and the episodes of the next one, in an ordinary folder."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("params.yaml").write_text(CHEAP)
        for stage in LOOP:
            assert run([stage, "--run", "r"]) == 0
        assert run(["rollout", "--run", "r", "--iteration", "2"]) == 0
    return folder / "r"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, rla: Rla) -> Iterator[Any]:
    Path("params.yaml").write_text(CHEAP)
    with s3_server(monkeypatch) as server:
        yield server


@pytest.fixture
def begun(server: Any, whole: Path) -> None:
    """On the store: pools and what the warm start makes."""
    files = client()
    for name in ("0", "test"):
        files.put(str(whole / name), f"{URL}/", recursive=True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Go on as the machine of that name; returns its mirror."""

    def at(name: str) -> Path:
        monkeypatch.setenv("RLA_MIRRORS", name)
        return mirror_folder(URL)

    return at


def call(rla: Rla, *arguments: str) -> str:
    code, said, error = rla(*arguments)
    assert code == 0, (arguments, error)
    return said


def test_an_iteration_on_two_machines_is_that_of_one_folder(
    rla: Rla, server: Any, machine: Machine, whole: Path
) -> None:
    for number, stage in enumerate(LOOP):
        machine(f"machine-{number % 2}")
        call(rla, stage, "--run", URL)
    third = machine("third")
    assert "success" in call(rla, "report", "--run", URL)
    assert not list(third.rglob("*.safetensors"))  # a report needs no weights
    call(rla, "rollout", "--run", URL, "--iteration", "2")  # here a policy that another machine has trained acts
    assert (third / "1/policy/model/model.safetensors").is_file() and not (third / "1/rm/model").exists()
    Mirror(URL).fetch()
    made = {name: one for name, one in contents(third).items() if not name.startswith(".store/")}
    assert made == contents(whole)
    assert made.keys() <= stored_files().keys()


def test_a_killed_rollout_goes_on_elsewhere_with_the_groups_that_were_done(
    rla: Rla, begun: None, machine: Machine, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("first")
    gates = tmp_path / "gates"
    gates.mkdir()
    for number in (1, 2):
        (gates / str(number)).touch()
    command = [sys.executable, "-m", "tests.integration.gated_rollout", str(gates), "rollout", "--run", URL]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        until(lambda: len(parts_on_store()) == 2, seconds=240)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = {name: etag for name, etag in stored_files().items() if name in parts_on_store()}
    assert "1/trajectories/_started.parquet" in stored_files()

    written, write = [], ShardWriter.write

    def counted(writer: ShardWriter, index: int, rows: list[dict[str, Any]]) -> None:
        written.append(index)
        write(writer, index, rows)

    monkeypatch.setattr(ShardWriter, "write", counted)
    second = machine("second")
    call(rla, "rollout", "--run", URL)
    assert len(written) == len(parts_on_store()) - 2
    assert done.items() <= stored_files().items()
    shard = contents(whole / "1/trajectories")
    assert contents(second / "1/trajectories") == shard
    assert {f"1/trajectories/{name}" for name in shard} == {n for n in stored_files() if n.startswith("1/trajectories")}


def test_a_killed_training_goes_on_elsewhere_from_its_last_saved_update(
    rla: Rla, begun: None, machine: Machine, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scores", "rewards"):
        client().put(str(whole / "1" / name), f"{URL}/1/", recursive=True)
    machine("first")
    command = [sys.executable, "-m", "tests.integration.held_training", "train-rm", "--run", URL]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        saved = "1/rm.partial/update-000001/stage.json"
        until(lambda: saved in stored_files() or process.poll() is not None, seconds=240)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert saved in stored_files() and "1/rm/checkpoint.json" not in stored_files()

    found, restore = [], TrainingProgress.restore

    def restored(progress: TrainingProgress, state: Any) -> list[dict[str, Any]]:
        found.append(len(history := restore(progress, state)))
        return history

    monkeypatch.setattr(TrainingProgress, "restore", restored)
    second = machine("second")
    call(rla, "train-rm", "--run", URL)
    assert found == [1] and contents(second / "1/rm") == contents(whole / "1/rm")
    assert not [name for name in stored_files() if ".partial/" in name]


def test_the_loop_turns_on_a_store_and_another_machine_finds_it_done(
    server: Any, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RLA_MIRRORS", raising=False)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        shutil.copy(resource("dvc.yaml"), folder)
        (folder / "params.yaml").write_text(CHEAP)
    turn = ["rla", "run", "--iterations", "1", "--run", URL]
    assert "success" in run_here(turn, first)
    made = stored_files()
    for name in ("policy", "rm"):
        assert contents(first / mirror_folder(URL) / "1" / name) == contents(whole / "1" / name)
    assert {"1/policy/checkpoint.json", "eval/1/metrics.json", "report/report.json"} <= made.keys()
    for name in ("iterations.yaml", "dvc.lock"):  # what git brings
        shutil.copy(first / name, second)
    assert "success" in run_here(turn, second)
    again = stored_files()  # a stage that is called leaves its time, at least
    assert {name for name in again if again[name] != made.get(name)} <= {REPORTED}  # DVC's cache is not there
    assert again.keys() == made.keys()


def parts_on_store() -> list[str]:
    return [name for name in stored_files() if name.startswith("1/trajectories/part-")]


def test_a_server_that_goes_in_the_middle_costs_nothing(
    rla: Rla, server: Any, begun: None, machine: Machine, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rla.mirroring.object_store.PAUSES", ())
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    mirror = machine("first")
    address, write = server.get_host_and_port(), ShardWriter.write

    def stopping(writer: ShardWriter, index: int, rows: list[dict[str, Any]]) -> None:
        write(writer, index, rows)
        if index == 1:
            server.stop()

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "write", stopping)
        code, _, error = rla("rollout", "--run", URL)
    assert code == 2 and error.count("error:") == 1 and "does not answer" in error and str(mirror) in error
    assert contents(mirror / "1/trajectories") == contents(whole / "1/trajectories")
    again = start_server(address)
    try:
        assert "1/trajectories/_manifest.parquet" not in stored_files()
        call(rla, "rollout", "--run", URL)
        Mirror(URL).fetch()
        assert {f"1/trajectories/{name}" for name in contents(mirror / "1/trajectories")} <= set(stored_files())
    finally:
        again.stop()


def test_slices_of_two_machines_are_joined_by_the_last_one(
    rla: Rla, begun: None, machine: Machine, whole: Path
) -> None:
    machine("first")
    assert "missing slices: 1/2" in call(rla, "rollout", "--run", URL, "--slice", "2/2")
    second = machine("second")
    call(rla, "rollout", "--run", URL, "--slice", "1/2")
    made = {name: one for name, one in contents(second / "1/trajectories").items() if "-of-2" not in name}
    assert made == contents(whole / "1/trajectories")
    assert "1/trajectories/_manifest.parquet" in stored_files()


def test_reading_commands_take_the_url(rla: Rla, begun: None, machine: Machine, whole: Path) -> None:
    machine("first")
    call(rla, "rollout", "--run", URL)
    machine("second")
    for command in (
        ("show", "--run", URL),
        ("timeline", URL),
        ("lineage", "--run", URL),
        ("compare", URL, str(whole)),
        ("prune", "--run", URL),
    ):
        assert call(rla, *command)
    assert "trajectories: complete" in call(rla, "rollout", "--run", URL, "--dry-run")
    code, _, error = rla("rollout", "--run", "r", "--policy", f"{URL}/0/policy")
    assert code == 2 and "--policy: a URL; only --run takes one" in error


def test_what_is_wrong_with_a_store_is_one_line(
    rla: Rla, server: Any, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("first")
    code, _, error = rla("make-tasks", "--run", "s3://another/run")
    assert code == 2 and "there is no bucket another" in error
    client().pipe_file(f"{BUCKET}/runs/t/0/pool/../../../../out", b"evil")
    code, _, error = rla("make-tasks", "--run", URL)
    assert code == 2 and "no path below bucket/runs/t" in error
    assert not list(tmp_path.rglob("out"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, error = rla("make-tasks", "--run", URL)
    assert code == 2 and "no credentials" in error


def test_a_large_object_is_known_by_its_etag(server: Any, tmp_path: Path) -> None:
    from rla.mirroring.object_store import CHUNK

    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2 * CHUNK + 1)
    store = ObjectStore(URL)
    store.send(large, "0/large")
    found = store.version("0/large")
    assert not store.send(large, "0/large", store.only_over(None, 2 * CHUNK + 1))  # somebody was faster
    assert found is not None and found.stamp.endswith("-3") and store.holds("0/large", large, found)
    with large.open("r+b") as file:
        file.write(b"x")
    assert not store.holds("0/large", large, found)
