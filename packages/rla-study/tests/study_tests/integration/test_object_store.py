"""`rla push` and `rla pull` against a real S3 server (moto) on the loopback device."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rla_study.transfer import RECORD

from rla.cli.app import run
from rla.models.checkpoint import ORIGIN
from tests.integration.conftest import Rla
from tests.integration.pipelines import PARAMS, environment
from tests.integration.stores import BUCKET, URL, client, empty_stores, s3_server, stored_files

STAGES = ("make-tasks", "init-model", "warm-start", "rollout", "validate-tasks", "score-steps")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stages have made, with a lock and a temporary file of calls that were killed."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("params.yaml").write_text(PARAMS)
        for stage in STAGES:
            assert run([stage, "--run", "r"]) == 0
    (folder / "r/1/.scores.lock").write_text("process 1 on somewhere")
    (folder / "r/1/scores/.part-00009.parquet.tmp").write_text("half")
    return folder / "r"


@pytest.fixture
def made(whole: Path, rla: Rla) -> Path:
    """The same, to change, as `r` of this folder."""
    shutil.copytree(whole, "r", symlinks=True)
    return Path("r")


@pytest.fixture
def few(whole: Path, rla: Rla) -> Path:
    """The same with half of its files: shards, the policy, and links to its first weights."""
    left = shutil.ignore_patterns("rm", "standings", "verdicts", "test", "timings")
    shutil.copytree(whole, "r", symlinks=True, ignore=left)
    return Path("r")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch):
        yield


@pytest.fixture
def server(started: None) -> None:
    """A store that is empty."""
    empty_stores()


def is_plain(path: Path) -> bool:
    """Whether it is not hidden, or is the record of a model."""
    return not path.name.startswith(".") or path.name == ORIGIN


def plain_files(folder: Path) -> dict[str, bytes]:
    """Path -> content of each plain file."""
    found = (path for path in folder.rglob("*") if path.is_file() and is_plain(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def stored(url: str = URL) -> dict[str, bytes]:
    files, root = client(), url.removeprefix("s3://")
    return {name.removeprefix(f"{root}/"): files.cat_file(name) for name in files.find(root)}


def refuse_torn(present: set[str], complete: set[str]) -> None:
    """Fails if a record is there before one of the files of its folder."""
    for key in present:
        if found := RECORD.fullmatch(key):
            assert {name for name in complete if name.startswith(f"{found[1]}/")} <= present, key


def call(rla: Rla, *arguments: str) -> str:
    code, said, error = rla(*arguments)
    assert code == 0, (arguments, error)
    return said


def refused(rla: Rla, *arguments: str) -> str:
    code, _, error = rla(*arguments)
    assert code == 2 and error.count("error:") == 1 and len(error.splitlines()) == 1, (code, error)
    return error


def test_a_run_comes_back_as_it_was_pushed_and_nothing_is_copied_twice(rla: Rla, server: None, made: Path) -> None:
    call(rla, "push", "r", URL)
    assert stored() == plain_files(made)
    call(rla, "pull", URL, "elsewhere/s")
    assert plain_files(Path("elsewhere/s")) == plain_files(made)
    assert all(map(is_plain, Path("elsewhere").rglob("*")))
    times = {path: path.stat().st_mtime_ns for path in Path("elsewhere").rglob("*") if path.is_file()}
    before = client().find(URL.removeprefix("s3://"), detail=True)
    assert "1/scores: 0 files" in call(rla, "push", "r", URL) and "0 other files" in call(
        rla, "pull", URL, "elsewhere/s"
    )
    assert times == {path: path.stat().st_mtime_ns for path in Path("elsewhere").rglob("*") if path.is_file()}
    after = client().find(URL.removeprefix("s3://"), detail=True)
    assert {name: info["LastModified"] for name, info in after.items()} == {
        name: info["LastModified"] for name, info in before.items()
    }


def test_a_run_that_was_pulled_goes_on(rla: Rla, server: None, made: Path) -> None:
    call(rla, "push", "r", URL)
    call(rla, "pull", URL, "s")
    assert "complete" in call(rla, "score-steps", "--run", "s", "--dry-run")
    call(rla, "compute-rewards", "--run", "s")
    call(rla, "push", "s", f"{URL}/")
    call(rla, "pull", URL, "r")
    assert plain_files(Path("r/1/rewards")) == plain_files(Path("s/1/rewards")) != {}


@pytest.mark.parametrize("name", ["put_file", "get_file"])
def test_a_call_that_is_killed_at_any_file_leaves_no_record_too_early_and_goes_on(
    rla: Rla, server: None, few: Path, name: str, forking: Path
) -> None:
    complete = plain_files(few)
    arguments = ("push", "r", URL)
    if name == "get_file":
        call(rla, *arguments)
        arguments = ("pull", URL, "s")
    count, kills, step = 0, 0, 9
    program = (str(forking / "python"), str(Path(__file__).with_name("dying_transfer.py")))
    while True:
        command = [*program, name, str(step), *arguments]
        status = subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, timeout=120).returncode
        present = set(stored_files()) if name == "put_file" else set(plain_files(Path("s")))
        refuse_torn(present, set(complete))
        finished = {key for key in present if is_plain(Path(key))}
        assert len(finished) >= min(count + 1, len(complete)), "a call from the start would stop at the same file"
        count, kills = len(finished), kills + 1
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert kills > len(complete) / (2 * step)
    assert (stored() if name == "put_file" else plain_files(Path("s"))) == complete


def test_what_a_stage_still_writes_is_left(rla: Rla, server: None, made: Path) -> None:
    (made / "1/trajectories/_manifest.parquet").unlink()  # begun
    (made / "1/scores/_started.parquet").write_bytes(b"another call takes the folder over")
    (made / "1/rm.partial/update-000001").mkdir(parents=True)
    (made / "1/rm.partial/update-000001/stage.json").write_text("{}")
    said = call(rla, "push", "r", URL)
    assert "1/scores" in said.splitlines()[-1] and "1/trajectories" in said.splitlines()[-1]
    assert not [key for key in stored_files() if key.startswith(("1/trajectories/", "1/scores/", "1/rm"))]
    assert "0/policy/checkpoint.json" in stored_files()
    call(rla, "pull", URL, "s")
    holder = (
        "from rla.store.atomic import *; from pathlib import Path\nwith lock_outputs([Path('t/0/policy')]): input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, env=environment(), text=True
    ) as process:
        while not list(Path().glob("t/0/.policy.lock")):
            pass
        assert "another call is writing it" in refused(rla, "pull", URL, "t")
        process.communicate("\n")


def test_a_complete_shard_with_the_record_of_its_start_is_copied(rla: Rla, server: None, few: Path) -> None:
    complete = plain_files(few)
    shutil.copy(few / "1/scores/_manifest.parquet", few / "1/scores/_started.parquet")  # a killed call left it
    call(rla, "push", "r", URL)
    assert stored() == plain_files(few) == complete


def test_another_folder_is_replaced_only_with_overwrite(rla: Rla, server: None, few: Path) -> None:
    call(rla, "push", "r", URL)
    call(rla, "rollout", "--run", "r", "--set", "policy.temperature=0.5", "--overwrite")
    for arguments in (("push", "r", URL), ("pull", URL, "r")):
        assert "1/trajectories: another one lies there" in refused(rla, *arguments)
    client().pipe_file(f"{URL}/1/trajectories/part-00099.parquet", b"of more groups")
    call(rla, "push", "r", URL, "--overwrite")
    assert stored() == plain_files(few)


def test_a_push_that_was_killed_makes_way_for_what_was_made_anew(rla: Rla, server: None, few: Path) -> None:
    call(rla, "push", "r", URL)
    client().rm_file(f"{URL}/1/trajectories/_manifest.parquet")
    client().pipe_file(f"{URL}/1/.trajectories.copying", b"digest of another manifest")
    call(rla, "rollout", "--run", "r", "--set", "policy.temperature=0.5", "--overwrite")
    call(rla, "push", "r", URL)
    assert stored() == plain_files(few)


def test_weights_that_were_pruned_come_back(rla: Rla, server: None, few: Path) -> None:
    call(rla, "push", "r", URL)
    complete = plain_files(few)
    shutil.rmtree(few / "0/policy/model")
    (few / "0/policy/pruned.json").write_text('{"parts": ["model"]}')
    call(rla, "push", "r", URL)
    assert stored() == complete
    call(rla, "pull", URL, "r")
    assert plain_files(few) == complete


def test_links_are_followed_in_models_alone(rla: Rla, server: None, few: Path, tmp_path: Path) -> None:
    """Those of `model.policy`, which are those of the first checkpoint if there is no warm start."""
    complete = plain_files(few)
    for number, name in enumerate(("init/policy/model.safetensors", "0/policy/model/model.safetensors")):
        (few / name).rename(tmp_path / f"weights{number}")
        (few / name).symlink_to(tmp_path / f"weights{number}")
    call(rla, "push", "r", URL)
    assert stored() == complete
    (few / "1/trajectories").rename(tmp_path / "out")
    (few / "1/trajectories").symlink_to(tmp_path / "out")
    before = plain_files(tmp_path / "out")
    assert "1/trajectories" in refused(rla, "pull", URL, "r")
    assert "1/trajectories" in refused(rla, "push", "r", URL)
    assert plain_files(tmp_path / "out") == before


@pytest.mark.parametrize(
    "key", ["0/pool/../../../../out", "1/scores/..\\out", "1/scores//out", "1/Policy/checkpoint.json"]
)
def test_names_on_a_store_are_not_trusted(rla: Rla, server: None, few: Path, tmp_path: Path, key: str) -> None:
    client().pipe_file(f"{BUCKET}/runs/t/1/policy/checkpoint.json", b"{}")
    client().pipe_file(f"{BUCKET}/runs/t/{key}", b"evil")
    before = set(tmp_path.rglob("*"))
    refused(rla, "pull", URL, "s")
    assert set(tmp_path.rglob("*")) == before


def test_a_folder_that_is_no_run_is_left_alone(rla: Rla, server: None, few: Path, tmp_path: Path) -> None:
    call(rla, "push", "r", URL)
    assert "something else than a run" in refused(rla, "pull", URL, ".")
    assert not Path("config.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("push", "r", "r2"), "not the URL of a folder in a bucket"),
        (("push", "r", "s3://bucket"), "not the URL of a folder in a bucket"),
        (("push", "r", "s3://bucket/../r"), "not the URL of a folder in a bucket"),
        (("push", "r", "file:///bucket/r"), "not the URL of a folder in a bucket"),
        (("push", "r", "nothing://bucket/r"), "nothing"),
        (("push", "r", "gs://bucket/r"), "gcsfs"),
        (("push", "r", "s3://another/r"), "bucket"),
        (("push", "none", URL), "no such run"),
        (("pull", URL, "s"), "holds no run"),
        (("pull", "r", URL), "a URL"),
        (("rollout", "--run", URL), "rla pull URL RUN"),
        (("run", "--run", URL), "rla pull URL RUN"),
    ],
)
def test_what_is_wrong_is_one_line(rla: Rla, server: None, few: Path, arguments: tuple[str, ...], said: str) -> None:
    if arguments[0] == "run":
        Path("dvc.yaml").write_text("stages: {}\n")
    assert said in refused(rla, *arguments)


def test_missing_credentials_and_a_server_that_is_gone_are_one_line(
    rla: Rla, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    with monkeypatch.context() as patch:
        with s3_server(patch) as server:
            call(rla, "push", "r", URL)
            with monkeypatch.context() as without:
                for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                    without.delenv(name)
                without.setenv("AWS_EC2_METADATA_DISABLED", "true")
                without.setenv("HOME", str(tmp_path))
                assert "credentials" in refused(rla, "push", "r", URL)
            assert server is not None
        assert URL in refused(rla, "pull", URL, "s")
