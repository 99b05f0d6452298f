"""dvc.yaml against the stage table: whatever a stage reads can make it run again."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla.config import config_digest
from rla.config.training import WarmStartConfig
from rla.errors import UserError
from rla.pipeline import StageSpec
from rla.pipeline.plan import Plan, document, followed, write_plan
from rla.store.layout import artifact, resource
from stages import STAGES
from stages.warm_start import SECTIONS
from tests.unit.builders import configured

ITERATION = 2
# They read what is there, and nothing of the loop reads them.
APART = ("report", "judge-accuracy")
SPECS = {spec.name: spec for spec in STAGES if spec.name not in APART}

Stage = dict[str, Any]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads what its run has already made, and the checkout may hold one."""
    monkeypatch.chdir(tmp_path)


def expanded() -> dict[str, Stage]:
    """The stages of dvc.yaml at iteration 2 and all that iteration 1 has, as `<name>@<iteration>`."""
    pipeline = yaml.safe_load(resource("dvc.yaml").read_text())["stages"]
    plan = document(Plan(iterations=ITERATION, run=Path("runs/t")), {})
    stages = {}
    for name, body in pipeline.items():
        if "do" not in body:
            stages[name] = filled(body, plan, "", {})
        elif name == "evaluate-untrained":
            stages |= {f"{name}@{key}": filled(body["do"], plan, "runs/t", {}) for key in plan["untrained"]}
        elif name == "evaluate":
            stages |= {f"{name}@{number}": filled(body["do"], plan, number, {}) for number in plan["evaluations"]}
        else:
            stages |= {f"{name}@{key}": filled(body["do"], plan, key, item) for key, item in plan["iterations"].items()}
    return stages


def filled(body: Stage, plan: dict[str, Any], key: Any, item: dict[str, Any]) -> Stage:
    """`body` with DVC's placeholders replaced."""
    values = {"run": plan["run"], "last": plan["last"], "params": "params.yaml", "options": plan["options"]}
    values |= {"key": key, "item": key, **{f"item.{name}": value for name, value in item.items()}}
    text = json.dumps(body)
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", str(value))
    assert "${" not in text
    filled: Stage = json.loads(text)
    return filled


def outputs(stage: Stage) -> list[str]:
    return [next(iter(out)) for out in stage.get("outs", [])]


def places(path: Path) -> set[str]:
    """What DVC may know an artifact by: itself, the folder that it lies in, the record of a checkpoint."""
    return {str(path), str(path.parent), str(path / "checkpoint.json")}


def sections(stage: Stage) -> set[str]:
    return followed({"stages": {"": stage}})


def upstream(stages: dict[str, Stage], name: str) -> set[str]:
    """The names of all stages that `name` depends on, however indirectly."""
    makers = {path: maker for maker, stage in stages.items() for path in outputs(stage)}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for path in stages[waiting.pop()].get("deps", []):
            maker = makers[path]
            if maker not in found:
                found.add(maker)
                waiting.append(maker)
    return found


def instance(spec: StageSpec, stages: dict[str, Stage]) -> str:
    return spec.name if spec.name in stages else f"{spec.name}@{ITERATION}"


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_change_of_any_parameter_that_a_stage_reads_reaches_it(spec: StageSpec) -> None:
    stages = expanded()
    name = instance(spec, stages)
    reached = sections(stages[name]).union(*(sections(stages[maker]) for maker in upstream(stages, name)))
    assert [path for path in (*spec.sections, "seed") if not {path, path.split(".")[0]} & reached] == []


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_stage_names_no_parameter_that_it_does_not_read(spec: StageSpec) -> None:
    stages = expanded()
    read = {*spec.sections, "seed"}
    assert [path for path in sections(stages[instance(spec, stages)]) if not {path, path.split(".")[0]} & read] == []


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_change_of_any_folder_that_a_stage_reads_reaches_it(spec: StageSpec) -> None:
    stages = expanded()
    name = instance(spec, stages)
    reached = set(stages[name].get("deps", []))
    for maker in upstream(stages, name):
        reached |= {*outputs(stages[maker]), *stages[maker].get("deps", [])}
    for _, artifact_name in spec.reads:
        path = artifact(Path("runs/t"), artifact_name, ITERATION)
        assert places(path) & reached


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_dvc_knows_every_folder_that_a_stage_writes(spec: StageSpec) -> None:
    stages = expanded()
    known = outputs(stages[instance(spec, stages)])
    for _, name in spec.writes:
        assert places(artifact(Path("runs/t"), name, ITERATION)) & set(known)


def test_dvc_removes_no_output_before_its_stage_runs() -> None:
    """Each stage replaces its own, after it has checked that it can: DVC also removes what `rla` did not write."""
    outs = [out for stage in expanded().values() for out in stage["outs"]]
    assert [out for out in outs if not (isinstance(out, dict) and next(iter(out.values())).get("persist"))] == []


PARAMS_FILES = sorted(resource("pipelines").glob("*-*.yaml"))


@pytest.mark.parametrize("path", [resource("params.yaml"), *PARAMS_FILES], ids=lambda path: path.stem)
def test_every_params_file_names_all_keys_that_dvc_looks_at(path: Path, tmp_path: Path) -> None:
    shutil.copy(resource("dvc.yaml"), tmp_path)
    write_plan(Plan(iterations=1, params=path), tmp_path / "iterations.yaml", stages=STAGES)


def test_a_params_file_that_leaves_out_a_key_that_dvc_looks_at_is_refused(tmp_path: Path) -> None:
    shutil.copy(resource("dvc.yaml"), tmp_path)
    params = tmp_path / "params.yaml"
    written = yaml.safe_load(resource("params.yaml").read_text())
    del written["judge"]["prompt"], written["evaluation"]
    params.write_text(yaml.safe_dump(written))
    with pytest.raises(UserError, match=r"params\.yaml: .*; add evaluation, judge\.prompt \(default: \w+\)$"):
        write_plan(Plan(iterations=1, params=params), tmp_path / "iterations.yaml", stages=STAGES)
    assert not (tmp_path / "iterations.yaml").exists()


def test_the_two_warm_starts_together_read_what_their_stage_says() -> None:
    said = set(SPECS["warm-start"].sections)
    keys = {key for keys in SECTIONS.values() for key in keys}
    own = {key for key in keys if key.startswith("warm_start.")}
    assert {key.split(".")[1] for key in own} == {one.name for one in fields(WarmStartConfig)}
    of_judge = {key for key in keys if key.startswith("judge.")}  # of `judge`, the part that a warm start reads
    assert of_judge and keys - own - of_judge | {"warm_start", "judge"} == said


@pytest.mark.parametrize(
    ("change", "models"),
    [
        ("warm_start.policy.steps=7", {"policy"}),
        ("warm_start.policy.tokens_per_pass=4096", {"policy", "rm"}),  # the judge's rounds inherit it
        ("warm_start.policy.gradient_checkpointing=true", {"policy", "rm"}),
        ("warm_start.reward.steps=7", {"rm"}),
        ("judge.prompt=published", {"rm"}),
        ("warm_start.scenes=7", {"policy", "rm"}),
    ],
)
def test_a_warm_start_depends_on_the_parameters_of_its_rounds(change: str, models: set[str]) -> None:
    before, after = configured(), configured(change)
    changed = {one for one, keys in SECTIONS.items() if config_digest(before, keys) != config_digest(after, keys)}
    assert changed == models


def test_dvc_comes_to_an_evaluation_before_the_iterations_that_do_not_need_it() -> None:
    """It goes through the file from the top, each stage after what it depends on."""
    order = list(yaml.safe_load(resource("dvc.yaml").read_text())["stages"])
    assert order.index("evaluate") < order.index("rollout")


def test_the_small_file_for_any_environment_names_all_keys_that_dvc_looks_at(tmp_path: Path) -> None:
    shutil.copy(resource("dvc.yaml"), tmp_path)
    plan = Plan(iterations=1, params=resource("pipelines/small.yaml"), overrides=["env.name=alfworld"])
    write_plan(plan, tmp_path / "iterations.yaml", stages=STAGES)


def test_an_override_counts_when_the_plan_reads_the_params(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    params.write_text("env: {name: alfworld}\ntasks: {test_splits: []}\n")
    with pytest.raises(UserError, match=r"tasks\.test_splits is empty"):
        write_plan(Plan(iterations=1, params=params), tmp_path / "iterations.yaml", stages=STAGES)
    write_plan(
        Plan(iterations=1, params=params, overrides=["tasks.test_splits=[test]"]),
        tmp_path / "iterations.yaml",
        stages=STAGES,
    )
    with pytest.raises(UserError, match="foo"):
        write_plan(
            Plan(iterations=1, params=params, overrides=["rollout.foo=3"]), tmp_path / "iterations.yaml", stages=STAGES
        )


def test_more_iterations_leave_the_earlier_ones_as_they_are() -> None:
    short = document(Plan(iterations=3), {})
    long = document(Plan(iterations=5, evaluate_every=2), short)
    assert {key: long["iterations"][key] for key in short["iterations"]} == short["iterations"]
    assert long["iterations"]["5"] == {"prev": 4, "tasks": "4/candidates"}
    assert long["evaluations"] == [0, 2, 3, 4, 5]
    assert long["last"] == 5


@pytest.mark.parametrize(
    ("model", "warm", "untrained"),
    [("models/small", "true", {"init": "'runs/a b'"}), ("models/small", "false", {}), ("init", "true", {})],
)
def test_a_model_that_exists_is_evaluated_before_its_warm_start(
    tmp_path: Path, model: str, warm: str, untrained: dict[str, str]
) -> None:
    out, overrides = tmp_path / "iterations.yaml", [f"model.policy={model}", f"warm_start.enabled={warm}"]
    plan = Plan(iterations=1, params=resource("params.yaml"), run=Path("runs/a b"), overrides=overrides)
    write_plan(plan, out, stages=STAGES)
    assert yaml.safe_load(out.read_text())["untrained"] == untrained


def test_seed_and_params_name_the_run() -> None:
    plan = document(Plan(iterations=1, params=Path("pipelines/alfworld-qwen2.5-7b.yaml"), seed=4), {})
    assert plan["run"] == "runs/alfworld-qwen2.5-7b-seed4"
    assert plan["options"] == f"--run {plan['run']} --params pipelines/alfworld-qwen2.5-7b.yaml --seed 4"


def test_another_run_does_not_inherit_evaluations() -> None:
    other = document(Plan(iterations=9, seed=1), {})
    assert document(Plan(iterations=2, seed=2), other)["evaluations"] == [0, 2]


def test_a_plan_is_written_only_where_it_differs(tmp_path: Path) -> None:
    out, plan = tmp_path / "iterations.yaml", Plan(iterations=2, params=resource("params.yaml"))
    write_plan(plan, out, stages=STAGES)
    before = out.stat().st_mtime_ns
    assert write_plan(plan, out, stages=STAGES)[0].endswith("evaluated at 0, 2")
    assert out.stat().st_mtime_ns == before


def test_a_plan_for_params_that_do_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        write_plan(Plan(iterations=2, params=tmp_path / "none.yaml"), tmp_path / "iterations.yaml", stages=STAGES)


def test_a_run_outside_of_the_folder_that_dvc_drives_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/runs").symlink_to(tmp_path)  # to another disk
    (tmp_path / "project/dvc.yaml").write_text("stages: {}\n")
    out, params = tmp_path / "project/iterations.yaml", resource("params.yaml")
    with pytest.raises(UserError, match="lies outside of"):
        write_plan(Plan(iterations=2, params=params, run=tmp_path / "elsewhere"), out, stages=STAGES)
    assert not out.exists()
    inside = Plan(iterations=2, params=params, run=tmp_path / "project/runs/x")
    assert "2 iterations" in write_plan(inside, out, stages=STAGES)[0]
    (tmp_path / "project/.git").mkdir()  # its DVC would list the report in a .gitignore
    with pytest.raises(UserError, match="lies outside of"):
        write_plan(inside, out, stages=STAGES)
