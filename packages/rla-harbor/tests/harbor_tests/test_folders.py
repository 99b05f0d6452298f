"""Task folders: what is read from them, which are malformed, and why a task cannot be played."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from rla_harbor.folders import read_folder, task_folders

from harbor_tests.builders import TASKS, written
from rla.errors import UserError


def test_the_files_and_limits_of_a_folder() -> None:
    task = read_folder(TASKS / "fix-report")
    assert task.instruction.startswith("The script `/app/report.sh` sums")  # the canary is gone
    assert (task.category, task.plan.folder) == ("debugging", "/app")
    assert (task.agent_s, task.verifier_s, task.memory_mb, task.storage_mb) == (120.0, 30.0, 512, 64)
    assert task.why_not("") == "" and task.solved


def test_older_names_and_sizes_of_limits() -> None:
    task = read_folder(TASKS / "recover-token")
    assert (task.memory_mb, task.storage_mb, task.build_s) == (512, 64, 60.0)


def test_folders_are_found_below_each_other_and_their_steps_are_not(tmp_path: Path) -> None:
    written(tmp_path / "set", "one")
    written(tmp_path / "set", "two", files={"steps/first/instruction.md": "A step."})
    (tmp_path / "set/three").mkdir()
    (tmp_path / "set/three/instruction.md").write_text("It has no task.toml.")
    assert [folder.name for folder in task_folders(tmp_path)] == ["one", "three", "two"]
    assert task_folders(tmp_path / "set/one") == [tmp_path / "set/one"]


def test_a_folder_without_tasks_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no folder with a task\.toml"):
        task_folders(tmp_path)


def test_the_digest_depends_on_contents_and_not_on_the_place(tmp_path: Path) -> None:
    first, second = read_folder(written(tmp_path, "one")), read_folder(written(tmp_path, "two"))
    assert first.digest == second.digest
    (tmp_path / "two/tests/test.sh").write_text("exit 0\n")
    assert read_folder(tmp_path / "two").digest != first.digest


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("not toml at all", "task.toml: "),
        ("agent = 3\n", "agent is not a table"),
        ('[agent]\ntimeout_sec = "soon"\n', "agent.timeout_sec is 'soon'"),
        ("[verifier]\ntimeout_sec = -1\n", "verifier.timeout_sec is -1"),
        ("[verifier]\ntimeout_sec = nan\n", "verifier.timeout_sec is nan"),
        ('[environment]\nmemory = "much"\n', "environment.memory is 'much'"),
        ("[environment]\nstorage_mb = 0\n", "environment.storage is 0"),
        ("[environment]\nenv = { A = 1 }\n", "environment.env is not a table of texts"),
    ],
)
def test_a_malformed_config_names_its_key(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_folder(written(tmp_path, toml=toml))
    assert said in str(raised.value)


@pytest.mark.parametrize("missing", ["task.toml", "instruction.md", "tests/test.sh", "environment/Dockerfile"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folder = written(tmp_path)
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=f"it has no {missing}"):
        read_folder(folder)


def test_empty_instructions_and_bytes(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "instruction.md").write_text("<!-- canary -->\n\n")
    with pytest.raises(ValueError, match=r"instruction\.md is empty"):
        read_folder(folder)
    (folder / "instruction.md").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match="codec"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "environment/Dockerfile", "environment/new", "tests"])
def test_a_link_that_leads_out_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    folder, secret = written(tmp_path), tmp_path / "secret"
    (folder / "task.toml").write_text("not toml")
    secret.write_text("neither")
    if (folder / name).exists():
        (folder / name).rename(tmp_path / "moved")
    (folder / name).symlink_to(tmp_path if name == "tests" else secret)
    with pytest.raises(ValueError, match=f"^{name} is a link that leads out of the folder$"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "environment/Dockerfile", "environment/new"])
def test_a_pipe_is_refused_and_blocks_nobody(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    def late(*_: object) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        with pytest.raises(ValueError, match=f"^{name} is neither a file nor a folder$"):
            read_folder(folder)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def test_links_within_a_folder_stay_and_count(tmp_path: Path) -> None:
    folder = written(tmp_path, files={"environment/data/one": "1", "environment/data/two": "2"})
    plain = read_folder(folder).digest
    (folder / "environment/link").symlink_to("data/one")
    (folder / "environment/loop").symlink_to("loop")
    linked = read_folder(folder).digest
    (folder / "environment/link").unlink()
    (folder / "environment/link").symlink_to("data/two")
    assert len({plain, linked, read_folder(folder).digest}) == 3


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('schema_version = "2.0"\n', "its schema version is 2.0"),
        ('[[steps]]\nname = "one"\n', "it has several steps"),
        ("[environment]\ngpus = 1\n", "it wants a GPU"),
        ('[environment]\nos = "windows"\n', "it is for Windows"),
        ('[verifier]\nenvironment_mode = "separate"\n', "environment of their own"),
        ('[[environment.mcp_servers]]\nname = "x"\n', "MCP servers"),
    ],
)
def test_features_that_nothing_here_plays(tmp_path: Path, toml: str, why: str) -> None:
    task = read_folder(written(tmp_path, toml=toml))
    assert why in task.why_not("") and why in task.why_not("docker")
    assert "backend" not in task.why_not("")  # because none would help


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('[environment]\ndocker_image = "org/image:1"\n', "it needs the image org/image:1"),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]\n', "the sandbox has none"),
        ('[agent]\nuser = "dev"\n', "agent.user is 'dev'"),
        ('[verifier.env]\nKEY = "${API_KEY}"\n', "verifier.env takes values of this machine"),
        ('[environment.healthcheck]\ncommand = "curl localhost"\n', "it has a health check"),
    ],
)
def test_features_that_need_an_image(tmp_path: Path, toml: str, why: str) -> None:
    task = read_folder(written(tmp_path, toml=toml))
    assert why in task.why_not("") and task.why_not("docker") == ""


def test_tests_that_install_need_an_image_unless_a_solution_proves_them(tmp_path: Path) -> None:
    tests = "curl -LsSf https://example.org/install.sh | sh\nuvx pytest /tests\n"
    one = read_folder(written(tmp_path, "one", tests=tests, solution=""))
    assert one.why_not("").startswith("its tests/test.sh calls curl, which needs an image or a network")
    assert read_folder(written(tmp_path, "two", tests=tests)).why_not("") == ""


@pytest.mark.parametrize(
    ("name", "text", "called"),
    [
        ("tests/setup.sh", "set -e\napt-get install -y jq\n", "apt-get"),
        ("tests/deep/check", "#!/usr/bin/env bash\nwget -q https://example.org\n", "wget"),
        ("tests/test_it.py", 'subprocess.run([sys.executable, "-m", "pip", "install", "x"])\n', "pip"),
        ("tests/test_it.py", 'os.system("git clone https://example.org")\n', "git clone"),
        ("tests/test_it.py", "import os\nimport requests\n", "requests"),
        ("environment/prepare.sh", "curl -O https://example.org/data || true\n", "curl"),
        ("environment/unused.sh", "curl -O https://example.org/data\n", ""),
        ("tests/expected.txt", "curl https://example.org\n", ""),
        ("tests/setup.sh", "# needs no apt-get\ntrue\n", ""),
        ("tests/test_it.py", 'import re\nassert service["docker"] == "mount"\npip = "pipes"\n', ""),
    ],
)
def test_scripts_of_tests_and_setup_are_searched_for_downloads(
    tmp_path: Path, name: str, text: str, called: str
) -> None:
    docker = "FROM debian\nWORKDIR /app\nCOPY . .\nRUN test ! -e prepare.sh || bash prepare.sh\n"
    folder = written(tmp_path, docker=docker, solution="", files={name: text})
    why = f"its {name} calls {called}, which needs an image or a network; env.own.backend is empty"
    assert read_folder(folder).why_not("") == (why if called else "")


def test_a_phase_with_another_network_is_not_played_by_a_backend(tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "x"\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n'
    task = read_folder(written(tmp_path, toml=toml))
    assert (task.why_not("docker"), task.why_not("")) == (
        "it changes its network",
        "it needs the image x; it changes its network",
    )
