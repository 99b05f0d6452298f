"""What the times of a stage say of each call, and which of them count."""

from __future__ import annotations

import io
import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rla
from rla.cli.app import run
from rla.cli.calls import call_facts, git_revision, used_gpus
from rla.cli.commands import print_report
from rla.cli.progress import LineProgress
from rla.pipeline import StageContext
from rla.plugins import package_versions
from rla.report.collect import seconds_of
from rla.store.shards import Origin, write_shard
from stages import STAGES
from tests.unit.builders import configured, install, task
from tests.unit.cli.test_cli import replace_stage

RECORD = Path("r/timings/1-adapt-env.json")
NAMED = ("-c", "user.name=n", "-c", "user.email=n@example.org")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def git(*words: str) -> None:
    subprocess.run(["git", *NAMED, *words], check=True)


def calls() -> list[dict[str, Any]]:
    return list(json.loads(RECORD.read_text())["calls"])


def stage(ctx: StageContext) -> dict[str, Any]:
    """Writes one task; its origin is the parameter alpha_low."""
    made_from = Origin(config=str(ctx.config.adaptation.alpha_low), inputs={}, seed=0)
    write_shard(ctx.path("out"), "tasks", [task("t").row()], made_from, overwrite=ctx.overwrite)
    return {}


def test_calls_of_another_origin_and_those_that_find_all_complete_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stage(monkeypatch, "adapt-env", stage)
    for alpha in (0.1, 0.15, 0.15):
        assert run(["adapt-env", "--run", "r", "--overwrite", "--set", f"adaptation.alpha_low={alpha}"]) == 0
    first, second, third = calls()
    assert [call["made"] for call in (first, second, third)] == [True, True, False]
    assert first["origin"] != second["origin"] == third["origin"]
    assert seconds_of(Path("r")) == {(1, "adapt-env"): second["seconds"] + third["seconds"]}


def test_a_call_that_has_added_a_part_has_made_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of several slices does: the shard is not complete."""

    def part(ctx: StageContext) -> dict[str, Any]:
        ctx.path("out").mkdir(parents=True)
        (ctx.path("out") / "part-00000.parquet").write_bytes(b"")
        return {}

    replace_stage(monkeypatch, "adapt-env", part)
    assert run(["adapt-env", "--run", "r"]) == 0
    assert calls()[0]["made"] is True


def test_a_call_for_another_folder_is_none_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stage(monkeypatch, "adapt-env", stage)
    assert run(["adapt-env", "--run", "r"]) == 0
    before = RECORD.read_text()
    assert run(["adapt-env", "--run", "r", "--out", "elsewhere"]) == 0
    assert RECORD.read_text() == before


def test_the_evaluation_before_a_warm_start_has_times_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stage(monkeypatch, "evaluate", stage)
    for place in ("r/eval/untrained", "r/eval/0"):
        out = ["--out", f"{place}/trajectories", "--metrics", f"{place}/metrics.json"]
        assert run(["evaluate", "--run", "r", "--iteration", "0", *out]) == 0
    assert seconds_of(Path("r")).keys() == {(0, "evaluate-untrained"), (0, "evaluate")}


def test_the_revision_is_that_of_the_source_and_the_projects_stands_beside_it(folder: Path) -> None:
    assert call_facts()["project_revision"] is None
    (folder / "a").write_text("1")
    for words in (("init", "-q"), ("add", "a"), ("commit", "-q", "-m", "a")):
        git(*words)
    facts = call_facts()
    assert facts["project_revision"] == git_revision(folder)
    assert facts.get("revision") != facts["project_revision"]


def test_the_versions_are_those_of_the_core_of_packages_and_of_what_those_require(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cup = ("Requires-Dist: dice-cup==2.0 ; extra == 'cup'", "Requires-Dist: dice-table", "Requires-Dist: rla")
    install(folder, "dice", "1.5", "[rla.envs]\ndice = dice:Dice\n", metadata="\n".join(cup))
    install(folder, "dice-cup", "2.0")
    install(folder, "dice-alone", "3.0")
    monkeypatch.syspath_prepend(str(folder))
    found = package_versions.__wrapped__()
    assert (found["dice"], found["dice-cup"], found["rla"]) == ("1.5", "2.0", rla.__version__)
    assert "torch" in found and not found.keys() & {"dice-table", "dice-alone"}


def test_a_package_inside_of_a_repository_that_does_not_follow_it_has_no_revision(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in the folder of a project: the project's commit says nothing of the code."""
    source = folder / "venv/rla/__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    git("init", "-q")
    monkeypatch.setattr(rla, "__file__", str(source))
    assert "revision" not in call_facts()
    git("add", str(source))
    git("commit", "-q", "-m", "a")
    rla.cli.calls._own_revision.cache_clear()
    assert call_facts()["revision"] == git_revision(folder)


def test_a_report_that_is_printed_leaves_the_run_as_it_is(folder: Path) -> None:
    """DVC has made it: files that are written again would count as changed."""
    assert run(["make-tasks", "--run", "r", "--env", "alfworld", "--set", "tasks.train_scenes=1"]) == 0
    before = {path: path.stat().st_mtime_ns for path in (folder / "r").rglob("*")}
    said: list[str] = []
    print_report(Path("r"), say=said.append)
    assert (
        said[-1] == "page: r/report/report.html"
        and {path: path.stat().st_mtime_ns for path in (folder / "r").rglob("*")} == before
    )


def test_a_call_says_where_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stage(monkeypatch, "adapt-env", stage)
    assert run(["adapt-env", "--run", "r"]) == 0
    assert calls()[0]["host"] == socket.gethostname() and calls()[0]["devices"] == []


@pytest.mark.parametrize(
    ("name", "overrides", "options", "used"),
    [
        ("rollout", ["generator.backend=vllm", "generator.tensor_parallel=2"], {}, ["4", "5"]),
        ("rollout", ["generator.backend=vllm", "generator.tensor_parallel=2"], {"workers": 2}, ["4", "5", "6", "7"]),
        ("rollout", ["generator.backend=transformers", "generator.data_parallel=2"], {"slice": "1/2"}, ["4"]),
        ("rollout", ["generator.backend=scripted"], {}, []),
        ("score-steps", ["generator.backend=vllm"], {}, ["4"]),
        ("score-steps", ["generator.backend=vllm", "judge.enabled=false"], {}, []),
        ("train-policy", [], {}, ["4"]),
        ("train-policy", ["launch.training=fsdp2.yaml"], {}, ["4", "5", "6", "7"]),
        ("adapt-env", ["generator.backend=vllm"], {}, []),
        ("validate-tasks", [], {}, []),
    ],
)
def test_the_gpus_that_a_stage_uses_of_those_that_it_sees(
    name: str, overrides: list[str], options: dict[str, Any], used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    spec = next(spec for spec in STAGES if spec.name == name)
    ctx = StageContext(
        spec=spec,
        stages=STAGES,
        config=configured(*overrides),
        run=Path("r"),
        iteration=1,
        progress=LineProgress(io.StringIO()),
        options=options,
    )
    assert [one["gpu"] for one in used_gpus(ctx)] == used
