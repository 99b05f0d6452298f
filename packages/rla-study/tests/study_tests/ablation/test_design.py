"""An ablation as a file: what is shared, what an arm changes, and what is refused."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from rla_study.ablation.command import designed
from rla_study.ablation.design import Design, load_design, merged_params

from rla.config import resolved
from rla.config.schema import flattened
from rla.envs.registry import from_mapping
from rla.errors import UserError
from rla.pipeline.plan import packaged_files
from rla.store.layout import resource

DESIGN: dict[str, Any] = {
    "params": "shared.yaml",
    "iterations": 2,
    "evaluate_every": 0,
    "seeds": [0, 1],
    "baseline": "outcome",
    "arms": {"outcome": {"title": "outcome only", "set": {"credit": {"estimator": "outcome"}}}, "full": {}},
}
SHARED = {"seed": 7, "credit": {"step_weight": 0.5}, "env": {"name": "alfworld", "max_steps": 9}}


def written(folder: Path, **changes: Any) -> Path:
    (folder / "shared.yaml").write_text(yaml.safe_dump(SHARED))
    path = folder / "ablation.yaml"
    path.write_text(yaml.safe_dump(DESIGN | changes, sort_keys=False))
    return path


@cache
def packaged(name: str) -> Design:
    return load_design(packaged_files()[name])


def test_an_arm_changes_single_keys_and_keeps_the_others(tmp_path: Path) -> None:
    design = load_design(written(tmp_path), overrides={"env": {"max_steps": 5}})
    outcome, full = design.arms
    assert (full.title, full.changes) == ("full", {})
    assert design.params(outcome, seed=3) == {
        "seed": 3,
        "credit": {"step_weight": 0.5, "estimator": "outcome"},
        "env": {"name": "alfworld", "max_steps": 5},
    }
    assert design.params(None)["seed"] == 7


def test_a_design_that_names_no_params_shares_those_of_the_small_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(yaml.safe_dump({key: value for key, value in DESIGN.items() if key != "params"}))
    assert load_design(path).shared == yaml.safe_load(resource("params.yaml").read_text())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"params": "absent.yaml"}, "absent.yaml: no such file"),
        ({"baseline": "none"}, "baseline none is not one of the arms"),
        ({"arms": {"../x": {}, "outcome": {}}}, "'../x' does not match"),
        ({"arms": ["outcome"]}, "arms: .* is not of type 'object'"),
        ({"arms": {"outcome": None}}, "arms.outcome: None is not of type 'object'"),
        ({"arms": {"outcome": {"sett": {}}}}, "'sett' was unexpected"),
        ({"seeds": []}, "seeds: "),
        ({"seeds": 3}, "seeds: 3 is not of type 'array'"),
        ({"iterations": 0}, "iterations: 0 is less than the minimum"),
        ({"extra": 1}, "'extra' was unexpected"),
        ({"arms": {"outcome": {}, "start-2": {}}}, "arm start-2: folders of starts are called so"),
        ({"measures": "avg@8"}, "measures: 'avg@8' is not of type 'array'"),
        ({"arms": {"outcome": {"against": "real"}}}, "arm outcome: against: real is not one of outcome"),
        ({"arms": {"outcome": {"own_tasks": True, "curated": True}}}, "arm outcome: curated chooses among"),
        ({"start_per_seed": 3}, "start_per_seed: 3 is not of type 'boolean'"),
        ({"arms": {"outcome": {"set": {"credit": {"estimater": "outcome"}}}}}, "did you mean credit.estimator"),
    ],
)
def test_a_wrong_design_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_design(written(tmp_path, **changes))


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text("arms: [")
    with pytest.raises(UserError, match=r"ablation\.yaml: not valid YAML"):
        load_design(path)
    path = written(tmp_path)
    (tmp_path / "shared.yaml").write_text("")
    with pytest.raises(UserError, match=r"shared\.yaml: expected a mapping"):
        load_design(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ablation\.yaml: no such file"):
        load_design(tmp_path / "ablation.yaml")


def test_the_packaged_design_has_the_arms_of_the_comparison_and_the_papers_lambdas() -> None:
    design = packaged("ablation")
    parts = ["outcome", "integrated", "reward-model", "thousand", "full", "step", "anchor"]
    assert [arm.name for arm in design.arms] == [
        *parts,
        "lambda-quarter",
        "lambda-4",
        "weak-frozen",
        "weak-trained",
        "weak-baseline",
    ]
    assert len(design.seeds) >= 3
    arms = {arm.name: from_mapping(design.params(arm), where=arm.name) for arm in design.arms}
    weights = {name: arms[name].credit.step_weight for name in ("lambda-quarter", "reward-model", "lambda-4")}
    assert weights == {"lambda-quarter": 0.25, "reward-model": 1.0, "lambda-4": 4.0}


@pytest.mark.parametrize(
    "name", ["ablation", "ablation-adaptation", "ablation-coding", "ablation-judge", "ablation-tool"]
)
def test_no_packaged_arm_says_again_what_all_share(name: str) -> None:
    design = packaged(name)
    shared = flattened(design.shared)
    for arm in design.arms:
        assert {key for key, value in flattened(arm.changes).items() if shared.get(key) == value} == set(), arm.name


def test_the_packaged_designs_of_the_games_compare_neighbours_on_two_splits() -> None:
    for name in ("ablation", "ablation-adaptation"):
        design = packaged(name)
        assert design.shared["tasks"]["test_splits"] == ["valid_seen", "held_out_rooms"]
        assert design.comparisons and len(design.seeds) >= 5
    ladder = {("integrated", "outcome"), ("reward-model", "integrated"), ("full", "reward-model"), ("full", "outcome")}
    assert ladder <= set(packaged("ablation").compared())


def test_an_arm_is_compared_with_its_own_or_with_what_the_design_names(tmp_path: Path) -> None:
    arms: dict[str, dict[str, Any]] = {"outcome": {}, "full": {}, "step": {"against": "full"}}
    assert load_design(written(tmp_path, arms=arms)).compared() == (("full", "outcome"), ("step", "full"))
    named = load_design(written(tmp_path, arms=arms, comparisons=[["step", "outcome"]]))
    assert named.compared() == (("step", "outcome"),)
    with pytest.raises(UserError, match=r"comparisons: other is not one of the arms outcome, full, step"):
        load_design(written(tmp_path, arms=arms, comparisons=[["other", "outcome"]]))


def test_the_packaged_design_of_the_tool_compares_recipes_clips_and_conversations() -> None:
    design = packaged("ablation-tool")
    arms = {arm.name: from_mapping(design.params(arm), where=arm.name) for arm in design.arms}
    highest = {name: params.train_policy.clip_high for name, params in arms.items()}
    assert highest == {
        **{"tcr": 0.28, "t": 0.2, "scr": 4e-4, "clip-20": 0.2, "clip-315": 0.315, "clip-35": 0.35},
        **dict.fromkeys(("real", "stitched", "narrow", "curated"), 0.28),
    }
    assert [arm.name for arm in design.arms if arm.curated] == ["curated"]
    assert {arm.name: arm.against for arm in design.arms if arm.against} == {"stitched": "real"}
    assert [arm.name for arm in design.arms if arm.own_tasks] == ["narrow"]
    narrow = arms["narrow"].tasks
    assert (narrow.kinds_of("train"), len(narrow.kinds_of("test"))) == (("arithmetic",), 4)
    assert {name for name, params in arms.items() if not params.credit.shaping.overlong[1]} == {"t"}
    assert [resolved(params)["collect"]["variant"] for params in arms.values()].count("stitched") == 1
    assert len(design.seeds) >= 3 and design.start_per_seed


def test_a_local_folder_is_found_from_every_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "games").mkdir()
    (tmp_path / "real.jsonl").touch()
    arms = {
        "outcome": {"set": {"warm_start": {"conversations": "real.jsonl"}}},
        "llm": {"set": {"adaptation": {"llm": {"model": "games"}}}},
    }
    path = written(tmp_path, arms=arms)
    design = load_design(path, overrides={"tasks": {"path": "games"}, "model": {"policy": "org/name"}})
    params = design.params(design.arms[1])
    assert params["tasks"] == {"path": str(tmp_path / "games")}
    assert params["model"] == {"policy": "org/name"}
    assert params["adaptation"] == {"llm": {"model": str(tmp_path / "games")}}
    assert design.params(design.arms[0])["warm_start"] == {"conversations": str(tmp_path / "real.jsonl")}


def test_merging_goes_section_by_section() -> None:
    assert merged_params({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "e": 4}) == {
        "a": {"b": 9, "c": 2},
        "d": 3,
        "e": 4,
    }


def test_a_call_may_have_other_iterations_and_evaluations_than_its_design() -> None:
    given = designed(None, [], iterations=16, evaluate_every=4)
    as_it_is = packaged("ablation")
    assert (given.iterations, given.evaluate_every) == (16, 4)
    assert designed(None, []) == as_it_is
    assert as_it_is.iterations != 16 and as_it_is.evaluate_every not in (0, 4)
