"""The command line: one command per stage, one line and exit code 2 for what a user can mend."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rla import __version__
from rla.cli.app import run
from rla.cli.calls import default_run, git_revision
from rla.errors import UserError
from rla.pipeline import StageContext, StageSpec
from rla.store.layout import resource
from rla.store.manifest import MANIFEST, read_run_config
from stages import STAGES

Captured = pytest.CaptureFixture[str]
IDS = [spec.name for spec in STAGES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def replace_stage(monkeypatch: pytest.MonkeyPatch, name: str, function: Any) -> None:
    """Let the command `name` call `function` in place of its module."""
    spec = next(spec for spec in STAGES if spec.name == name)
    module = ModuleType(spec.module)
    module.run = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, spec.module, module)


def test_help_lists_every_stage(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(spec.name in text for spec in STAGES)


@pytest.mark.parametrize("spec", STAGES, ids=IDS)
def test_help_of_a_stage_shows_its_example_and_its_folders(spec: StageSpec, capsys: Captured) -> None:
    assert run([spec.name, "--help"]) == 0
    text = capsys.readouterr().out
    assert " ".join(spec.example.split()) in " ".join(text.split())
    assert all(f"--{option}" in text for option, _ in (*spec.reads, *spec.writes))


def test_what_follows_an_iteration_begins_with_the_first(folder: Path, capsys: Captured) -> None:
    assert run(["rollout", "--iteration", "0", "--run", "r"]) == 2
    assert "greater than or equal to 1" in " ".join(capsys.readouterr().err.split())
    assert not (folder / "r").exists()


def test_help_imports_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "polars", "pyarrow", "numpy", "yaml", "rich", "pydantic"]
    code = "import sys; from rla.cli.app import run; run(['--help']); "
    code += f"sys.exit(any(name in sys.modules for name in {heavy}))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_version(capsys: Captured) -> None:
    assert run(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"rla {__version__}"
    assert {"torch", "transformers", "trl", "pyarrow", "dvc"} <= {line.split()[0] for line in lines}


def test_a_shell_can_ask_for_completions() -> None:
    asked = os.environ | {"_RLA_COMPLETE": "complete_bash", "COMP_WORDS": "rla train-", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "rla"], env=asked, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["train-policy", "train-rm"]


@pytest.mark.parametrize("spec", STAGES, ids=IDS)
def test_dry_run_prints_config_and_folders_and_writes_nothing(spec: StageSpec, folder: Path, capsys: Captured) -> None:
    assert run([spec.name, "--dry-run", "--run", "here", "--set", "env.max_steps=7"]) == 0
    text = capsys.readouterr().out
    assert ("max_steps: 7" in text) == ("env" in spec.sections)
    assert all(f"--{option} here/" in text for option, _ in spec.writes)
    assert "complete" not in text
    assert list(folder.iterdir()) == []


def test_dry_run_tells_complete_from_incomplete(folder: Path, capsys: Captured) -> None:
    for name, done in (("scores", True), ("verdicts", False)):
        (folder / "here/1" / name).mkdir(parents=True)
        if done:
            (folder / "here/1" / name / MANIFEST).write_text("{}")
    run(["compute-rewards", "--dry-run", "--run", "here"])
    text = capsys.readouterr().out
    assert "here/1/trajectories: absent" in text
    assert "here/1/scores: complete" in text
    assert "here/1/verdicts: incomplete" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "rollout.rollouts_per_tsk=4"], "did you mean rollout.rollouts_per_task?"),
        (["--set", "rollout"], "expected key=value"),
        (["--params", "none.yaml"], "none.yaml: no such file"),
        (["--env", "chess"], "env.name is 'chess'; installed: "),
        (["--env", "chess"], "alfworld, "),
        (["--iteration", "-1"], "--iteration"),
        (["--workers", "5000"], "--workers"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str], message: str, folder: Path, capsys: Captured) -> None:
    assert run(["rollout", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_of_more_iterations_than_any_run_has_is_refused(folder: Path, capsys: Captured) -> None:
    assert run(["plan", "--iterations", "10000000000"]) == 2
    assert "--iterations" in capsys.readouterr().err and not (folder / "iterations.yaml").exists()


def test_a_user_error_is_one_line(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ctx: StageContext) -> dict[str, Any]:
        raise UserError("x/part-00000.parquet: truncated; rerun the stage")

    replace_stage(monkeypatch, "adapt-env", broken)
    assert run(["adapt-env"]) == 2
    assert capsys.readouterr().err == "error: x/part-00000.parquet: truncated; rerun the stage\n"


def test_an_interrupt_is_exit_code_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(ctx: StageContext) -> dict[str, Any]:
        raise KeyboardInterrupt

    replace_stage(monkeypatch, "adapt-env", interrupted)
    assert run(["adapt-env"]) == 130


def test_sigterm_ends_a_stage_as_an_interrupt_does(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[str] = []

    async def episode() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            undone.append("episode")
            raise

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        await episode()

    before = signal.getsignal(signal.SIGTERM)
    replace_stage(monkeypatch, "adapt-env", lambda ctx: asyncio.run(main()))
    assert run(["adapt-env"]) == 143
    assert undone == ["episode"]
    assert capsys.readouterr().err == "interrupted: the same command goes on where this one stopped\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_stage_gets_its_folders_and_options(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StageContext] = []

    def record(ctx: StageContext) -> dict[str, Any]:
        seen.append(ctx)
        return {"train": "2 tasks", "rate": 0.123456}

    replace_stage(monkeypatch, "make-tasks", record)
    arguments = ["--run", "r", "--from", "data", "--split", "train", "--limit", "2", "--test", "elsewhere"]
    assert run(["make-tasks", *arguments, "--seed", "5", "--overwrite"]) == 0
    ctx = seen[0]
    assert ctx.options == {"from": Path("data"), "split": "train", "limit": 2}
    assert (ctx.path("test"), ctx.path("train")) == (Path("elsewhere"), Path("r/0/pool"))
    assert (ctx.config.seed, ctx.overwrite) == (5, True)
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["train: 2 tasks", "rate: 0.1235"] and len(said) == 3


def test_the_threads_of_the_parameters_hold_for_the_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def stage(ctx: StageContext) -> dict[str, Any]:
        seen.append((os.environ["OMP_NUM_THREADS"], torch.get_num_threads()))
        return {}

    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    replace_stage(monkeypatch, "adapt-env", stage)
    try:
        assert run(["adapt-env", "--run", "r", "--set", "launch.threads=2"]) == 0
    finally:
        torch.set_num_threads(before)
    assert seen == [("2", 2)]


def test_times_add_up_over_resumed_calls_and_start_anew_without_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = folder / "r/1/candidates"

    def calls() -> int:
        return len(json.loads((folder / "r/timings/1-adapt-env.json").read_text())["calls"])

    def stage(ctx: StageContext) -> dict[str, Any]:
        ctx.path("out").mkdir(parents=True, exist_ok=True)
        return {}

    replace_stage(monkeypatch, "adapt-env", stage)
    counts = []
    for _ in range(2):
        run(["adapt-env", "--run", "r"])
        counts.append(calls())
    output.rmdir()
    run(["adapt-env", "--run", "r"])
    assert [*counts, calls()] == [1, 2, 1]


def test_the_record_of_a_call_has_what_no_manifest_may_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(ctx: StageContext) -> dict[str, Any]:
        return {}

    replace_stage(monkeypatch, "adapt-env", stage)
    monkeypatch.setattr("sys.argv", ["/bin/rla", "adapt-env", "--set", "adaptation.alpha_low=0.1 "])
    run(["adapt-env", "--run", "r", "--set", "adaptation.alpha_low=0.1"])
    (call,) = json.loads((folder / "r/timings/1-adapt-env.json").read_text())["calls"]
    assert call["command"] == "rla adapt-env --set 'adaptation.alpha_low=0.1 '"
    assert call["versions"]["pyarrow"] and "project_revision" in call
    assert read_run_config(folder / "r")["adaptation"]["alpha_low"] == 0.1


def test_a_call_that_fails_leaves_the_parameters_of_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(ctx: StageContext) -> dict[str, Any]:
        if ctx.config.adaptation.alpha_low == 0.1:
            raise UserError("no")
        return {}

    replace_stage(monkeypatch, "adapt-env", stage)
    for alpha, status in ((0.15, 0), (0.1, 2)):
        assert run(["adapt-env", "--run", "r", "--set", f"adaptation.alpha_low={alpha}"]) == status
    assert read_run_config(folder / "r")["adaptation"]["alpha_low"] == 0.15
    assert run(["adapt-env", "--run", "r", "--out", "elsewhere"]) == 0  # no output of the run
    assert read_run_config(folder / "r")["adaptation"]["alpha_low"] == 0.15


def test_a_revision_is_that_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_revision(tmp_path) is None
    named = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    (tmp_path / "a").write_text("1")
    for words in (["init", "-q"], ["add", "a"], [*named, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *words], check=True)
    clean = git_revision(tmp_path)
    assert clean is not None and len(clean) == 40
    (tmp_path / "a").write_text("2")
    assert git_revision(tmp_path) == f"{clean}-dirty"


def test_the_params_file_names_the_run() -> None:
    assert default_run(Path("params.yaml")) == Path("runs/alfworld-tiny")
    assert default_run(resource("pipelines/alfworld-qwen2.5-7b.yaml")) == Path("runs/alfworld-qwen2.5-7b")
    small = resource("pipelines/small.yaml")
    assert default_run(small, "reasoning-gym:gcd") == Path("runs/reasoning-gym-gcd-small")
    assert default_run(small, "openenv:http://a:80/../b") == Path("runs/openenv-http-a-80-..-b-small")


@pytest.mark.parametrize(
    ("text", "name"),
    [("seed: 1\n", "my-project"), ("env: {name: coding}\n", "coding"), ("name: x\nenv: {name: coding}\n", "x")],
)
def test_a_params_file_without_a_name_takes_that_of_environment_or_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    (tmp_path / "my project").mkdir()
    monkeypatch.chdir(tmp_path / "my project")
    Path("params.yaml").write_text(text)
    assert default_run(Path("params.yaml")) == Path("runs") / name


@pytest.mark.parametrize("words", [["--out", "dangling"], ["--run", "dangling"]])
def test_an_output_through_a_link_that_names_nothing_is_refused(
    words: list[str], folder: Path, capsys: Captured
) -> None:
    (folder / "dangling").symlink_to("nowhere/x")
    assert run(["rollout", "--run", "here", *words]) == 2
    assert capsys.readouterr().err == (
        "error: dangling: a link to nowhere/x, which is not there; make that or remove the link\n"
    )
    assert not (folder / "here").exists()
