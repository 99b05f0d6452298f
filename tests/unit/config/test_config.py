"""params.yaml: unknown keys, wrong types and impossible combinations are refused, with the file and the key."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rla.config import config_digest, resolved
from rla.config.sections import TasksConfig
from rla.envs.registry import load_config, schema_of_params
from rla.errors import UserError
from rla.pipeline.plan import environment_of, packaged_files
from rla.store.layout import resource
from tests.unit.builders import configured


def write(folder: Path, data: Mapping[str, Any]) -> Path:
    """A params file with these sections, of ALFWorld where it names no other environment."""
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({**data, "env": {"name": "alfworld", **data.get("env", {})}}))
    return path


def test_defaults_are_the_papers_values() -> None:
    config = configured()
    assert (config.rollout.rollouts_per_task, config.judge.votes, config.credit.step_weight) == (8, 3, 1.0)
    assert (config.adaptation.alpha_low, config.adaptation.alpha_high) == (0.2, 0.8)


def test_a_params_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("env: {name: alfworld, max_steps: 7}")
    assert load_config(str(path)) == load_config(path)
    with pytest.raises(UserError, match=r"nowhere\.yaml: no such file"):
        load_config("nowhere.yaml")


def test_overrides_are_typed(tmp_path: Path) -> None:
    path = write(tmp_path, {"train_policy": {"lr": 1e-3}})
    config = load_config(path, ["train_policy.lr=3e-4", "env.omit_commands=[look, help]"])
    assert config.train_policy.lr == 3e-4
    assert config.env.omit_commands == ("look", "help")


SERVED: dict[str, Any] = {"server": {"url": "http://a/v1", "model": "m"}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rolout": {}}, "unknown key rolout; did you mean rollout"),
        ({"rollout": {"rollouts_per_tsk": 4}}, "did you mean rollout.rollouts_per_task"),
        ({"env": {"own": {"engine": "unity"}}}, "choose one of fast, textworld"),
        ({"seed": "one"}, "expected int"),
        ({"warm_start": {"calibration": {"steps": -1}}}, "warm_start.calibration.steps is -1; it must be 0 or more"),
        ({"warm_start": {"calibration": {"steps": 1, "examples": 0}}}, "warm_start.calibration.examples is 0"),
        ({"train_policy": {"replay": 1}}, "unknown key train_policy.replay"),
        ({"checkpoints": {"keep": -1}}, "checkpoints.keep is -1; it must be 0 or more"),
        ({"warm_start": {"alike": -1}}, "warm_start.alike is -1; it must be 0 or more"),
        ({"evaluation": {"temperature": -1.0}}, "evaluation.temperature is -1.0; it must be 0, or from 0.01 to 100"),
        ({"warm_start": {"reward": {"examples": 0}}}, "warm_start.reward.examples is 0; it must be 1 or more"),
        ({"policy": {"max_tokens": 0}}, "policy.max_tokens is 0; it must be 1 or more"),
        ({"credit": {"policy_band": [0.8, 0.2]}}, r"credit.policy_band is \[0.8, 0.2\]; set it to \[low, high\]"),
        ({"credit": {"policy_band": [0.8]}}, r"credit.policy_band is \[0.8\]; expected list of 2"),
        ({"credit": {"policy_band": [0, 3]}}, r"credit.policy_band is .*; it must be at most 2"),
        ({"rollout": 3}, "rollout must be a mapping of keys, not 3"),
        ({"judge": {"votes": 0}}, "judge.votes is 0; it must be 1 or more"),
        ({"train_rm": {"max_samples": -1}}, "train_rm.max_samples is -1"),
        ({"train_rm": {"loss": "gspo"}}, "unknown key train_rm.loss"),
        ({"tasks": {"test_splits": ["../up"]}}, "tasks.test_splits: '../up' names a folder"),
        ({"tasks": {"test_splits": ["a", "a"]}}, "tasks.test_splits: a is named twice"),
        ({"tasks": {"test_splits": ["train"]}}, "train is named twice or is tasks.train_split"),
        ({"tasks": {"test_splits": []}}, "tasks.test_splits is empty; name the split"),
        ({"adaptation": {"alpha_low": 0.9}}, "alpha_low < alpha_high"),
        ({"adaptation": {"return_after": -1}}, "return_after is -1; it must be 0 or more"),
        (
            {"adaptation": {"acceptance": "interval"}, "rollout": {"pending": "within", "tasks_per_iteration": 1}},
            "set rollout.tasks_per_iteration to 2 or more",
        ),
        ({"policy": {"decoding": "admissible", "reply": "index"}}, "needs policy.reply: text"),
        ({"name": "../elsewhere"}, "name: '../elsewhere' names a folder; use letters, digits"),
        ({"judge": {"server": {"model": "m"}}}, "judge.server is set; set judge.server.url to the base URL"),
        ({"judge": {"server": {"url": "http://k:v@a/v1"}}}, "keys belong into the environment"),
        ({"judge": {"server": {"url": "localhost:8000"}}}, "such as http://localhost:8000/v1"),
        ({"judge": {"server": {"url": "http://["}}}, "set judge.server.url to the base URL"),
        ({"judge": {"server": {"url": "http://a:b/v1"}}}, "set judge.server.url to the base URL"),
        ({"judge": {"server": {"url": "http://a/v1"}}}, "set judge.server.model to the name"),
        ({"judge": SERVED | {"decoding": "admissible"}}, "set judge.decoding: free"),
        ({"generator": {"lora": "adapter"}}, "lora: adapter needs the engine vllm, not transformers"),
        (
            {"generator": {"lora": "adapter", "backend": "vllm", "max_lora_rank": 24}},
            "max_lora_rank is 24; choose one of 1, 8",
        ),
        (
            {"generator": {"lora": "adapter", "backend": "vllm"}, "train_rm": {"lora": {"rank": 128}}},
            "train_rm.lora.rank is 128; set generator.max_lora_rank",
        ),
        ({"generator": {"data_parallel": 0}}, "generator.data_parallel is 0; it must be from 1 to 4096"),
        ({"generator": {"data_parallel": "all"}}, "generator.data_parallel is 'all'; expected int"),
        ({"train_policy": {"dual_clip": "x"}}, "train_policy.dual_clip is 'x'; expected a finite number or null"),
        ({"generator": {"data_parallel": True}}, "generator.data_parallel is True; expected int"),
    ],
)
def test_bad_params_name_the_file_and_the_key(tmp_path: Path, data: Mapping[str, Any], message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UserError, match=message) as error:
        load_config(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["a: [", b"\xff\xfe"])
def test_a_params_file_that_is_no_yaml_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=r"params\.yaml: not valid YAML"):
        load_config(path)
    with pytest.raises(UserError, match="a folder, a pipe or a device, not a file"):
        load_config(tmp_path)


def test_an_evaluation_may_be_greedy() -> None:
    assert configured("evaluation.temperature=0").evaluation.temperature == 0


def test_an_override_that_is_no_yaml_is_named() -> None:
    with pytest.raises(UserError, match=r"--set tasks\.kinds=\[stdio: '\[stdio' is not valid YAML"):
        configured("tasks.kinds=[stdio")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["rollout.rollouts_per_task=0"], "--set rollout.rollouts_per_task=0: rollout.rollouts_per_task is 0"),
        (["rolout.x=1"], "--set rolout.x=1: unknown key rolout; did you mean rollout?"),
        (["env.own.nonsense=1"], "--set env.own.nonsense=1: unknown key env.own.nonsense"),
        (["seed=1", "judge.votes=x"], "--set judge.votes=x: judge.votes is 'x'; expected int"),
        (["adaptation.edits=[nonsense]"], "--set adaptation.edits=[nonsense]: adaptation.edits: 'nonsense' is unknown"),
        (["policy.reply=tagged", "policy.decoding=admissible"], "--set policy.reply=tagged --set policy.decoding="),
    ],
)
def test_an_error_of_an_override_names_it_and_not_the_file(tmp_path: Path, overrides: list[str], named: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("env: {name: alfworld}\n")
    with pytest.raises(UserError) as caught:
        load_config(path, overrides)
    assert str(caught.value).startswith(named)


def test_an_error_of_the_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("env: {name: alfworld}\nrollout: {rollouts_per_task: 0}\n")
    with pytest.raises(UserError, match=rf"^{path}: rollout\.rollouts_per_task is 0"):
        load_config(path, ["judge.votes=2"])


def test_digest_depends_on_the_stages_own_sections_only() -> None:
    base, other = configured(), configured("train_rm.lr=1e-3")
    assert config_digest(base, ["rollout"]) == config_digest(other, ["rollout"])
    assert config_digest(base, ["train_rm"]) != config_digest(other, ["train_rm"])


def test_the_number_of_workers_does_not_enter_a_digest() -> None:
    one, other = configured(), configured("generator.data_parallel=4")
    assert one != other
    assert config_digest(one, ["generator", "policy.reply"]) == config_digest(other, ["generator", "policy.reply"])


def test_an_expert_and_conversations_exclude_each_other() -> None:
    with pytest.raises(UserError, match=r"set warm_start\.expert\.steps"):
        configured("warm_start.expert.steps=1", "warm_start.conversations=collected")


def test_the_schema_file_is_the_one_that_the_classes_give() -> None:
    stored = json.loads((resource("schemas") / "params.schema.json").read_text())
    assert stored == schema_of_params()


SHIPPED = {name: path for name, path in packaged_files().items() if environment_of(path)}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_settings_that_are_shipped_are_valid(name: str) -> None:
    jsonschema.validate(yaml.safe_load(SHIPPED[name].read_text()), schema_of_params())
    assert resolved(load_config(SHIPPED[name]), ["env"])["env"]["name"] == environment_of(SHIPPED[name])


@pytest.mark.parametrize(
    ("env", "valid"),
    [
        ({"name": "alfworld", "own": {"engine": "fast"}}, True),
        ({"name": "alfworld", "own": None}, True),
        ({"name": "alfworld", "own": {"engin": "fast"}}, False),
        ({"name": "of-a-package", "own": {"id": "any", "limits": {"wall_s": 1.0}}}, True),
        ({"name": "of-a-package", "own": "id"}, False),
    ],
)
def test_the_schema_types_the_own_parameters_of_the_environments_that_it_knows(env: Any, valid: bool) -> None:
    assert jsonschema.Draft202012Validator(schema_of_params()).is_valid({"env": env}) is valid


def test_an_environment_that_is_not_named_or_not_known_is_refused() -> None:
    with pytest.raises(UserError, match=r"the defaults: env\.name says no environment; set it, or give --env NAME"):
        load_config(None)
    with pytest.raises(UserError, match=r"env\.name is 'alfwrld'; did you mean alfworld\?"):
        load_config(None, ["env.name=alfwrld"])


def test_own_parameters_are_typed_by_their_environment() -> None:
    assert configured("env.own.engine=textworld").env.own.engine == "textworld"
    with pytest.raises(UserError, match=r"unknown key env\.own\.enginee; did you mean env\.own\.engine\?"):
        configured("env.own.enginee=fast")


def test_further_held_out_splits_are_no_part_of_what_the_training_pool_is_made_from() -> None:
    """A run that gets a second held-out split keeps its training tasks and all that followed from them."""
    one, two = configured(), configured("tasks.test_splits=[test, other]")
    assert config_digest(one, ["env", "tasks"]) == config_digest(two, ["env", "tasks"])
    assert config_digest(one, ["env", "tasks.test_splits"]) == config_digest(two, ["env"])
    assert (one.tasks.test_splits, two.tasks.test_splits) == (("test",), ("test", "other"))
    assert two.tasks.held_out("other") and not two.tasks.held_out("train")


def test_held_out_splits_may_have_kinds_of_their_own() -> None:
    tasks = TasksConfig(kinds=("a",), test_kinds=("a", "b"))
    assert (tasks.kinds_of("train"), tasks.kinds_of("test")) == (("a",), ("a", "b"))
    assert TasksConfig(kinds=("a",)).kinds_of("test") == ("a",)


def test_a_pipe_as_parameters_is_one_line_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "params.yaml")
    with pytest.raises(UserError, match=r"params\.yaml: a folder, a pipe or a device, not a file"):
        load_config(tmp_path / "params.yaml")


def test_parameters_of_gigabytes_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "params.yaml").open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(UserError, match="more than parameters can have"):
        load_config(tmp_path / "params.yaml")
