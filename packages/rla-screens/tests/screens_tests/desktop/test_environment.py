"""What the stages ask of the environment, without a machine."""

from __future__ import annotations

import pytest
from rla_screens.desktop.environment import Desktop
from rla_screens.desktop.params import desktop_params
from rla_screens.desktop.playing import PlayedScript
from rla_screens.desktop.scenarios import scenario_of_json, task_of_scenario
from rla_screens.desktop.scripts import demonstration_of

from rla.config import Config
from rla.envs.observation import Observation
from rla.envs.protocols import JudgeView
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla.pictures.prompts import PicturesJudge, PicturesPolicy, shows_images
from rla.pipeline.plan import packaged_files
from rla.rollouts.labels import PlayedEpisode, label_episodes
from tests.unit.config.published_runs import assert_published

PNG = b"\x89PNG\r\n\x1a\n"


def configured(*overrides: str) -> Config:
    return load_config(None, ["env.name=desktop", "policy.history=window", *overrides])


def test_the_published_run_has_the_published_values() -> None:
    config = load_config(packaged_files()["osworld-qwen3-vl-8b"])
    own = desktop_params(config)
    assert (config.env.max_steps, config.policy.images, config.judge.images, config.judge.votes) == (30, 3, 1, 3)
    assert (config.rollout.tasks_per_iteration, config.rollout.rollouts_per_task) == (12, 8)
    assert (config.train_policy.updates, config.train_rm.updates, config.train_policy.lr) == (4, 2, 1e-6)
    assert (own.actions, own.success) == ("computer_use", "positive")
    assert own.osworld_python  # every metric by OSWorld's own code
    assert isinstance(environment("desktop"), Desktop) and shows_images(environment("desktop"), config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.own.machine=remote", "set env.own.addresses"),
        ("env.own.addresses=[ftp://x]", "is not a base URL"),
        ("env.own.addresses=[http://a:80,http://A/]", "http://A/ is named twice"),
        ("env.own.machine=docker", "set env.own.image"),
        ("env.own.osworld=/x", "set env.own.guest_python"),
        ("policy.decoding=admissible", "needs free"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Desktop().check(configured(override))


def test_the_published_tool_wants_a_window_of_screenshots() -> None:
    with pytest.raises(UserError, match="history to window"):
        Desktop().check(load_config(None, ["env.name=desktop", "env.own.actions=computer_use", "policy.history=full"]))


def test_the_judge_sees_both_screens_and_boxes_its_vote() -> None:
    judge = Desktop().judge_prompt(configured("judge.prompt=published"))
    assert isinstance(judge, PicturesJudge)
    view = JudgeView(
        instruction="Save it.",
        history=[("", "mouse_click(1, 1)")],
        observation="The screen.",
        commands=(),
        reply="I save.\n</tool_call>",
        action='keyboard_press("Control+s")',
        valid=True,
        next_observation="The screen.",
        images=((PNG + b"before",),),
        next_images=(PNG + b"after",),
    )
    (message,) = judge.with_pictures(view)
    shown = [part.png for part in message.parts if not isinstance(part, str)]
    text = "".join(part for part in message.parts if isinstance(part, str))
    assert shown == [PNG + b"before", PNG + b"after"]
    assert "Save it." in text and "1. mouse_click(1, 1)" in text and "< /tool_call>" in text.replace("</", "< /")
    assert judge.parse("so \\boxed{-1}") == -1 and judge.parse("\\boxed{+1}") == 1 and judge.parse("1") is None


def test_the_policy_reads_the_published_call_as_an_action() -> None:
    prompt = Desktop().policy_prompt(configured("env.own.actions=computer_use"))
    assert isinstance(prompt, PicturesPolicy)
    call = '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [512, 340]}}'
    assert prompt.parse(f"Action: click.\n<tool_call>\n{call}\n</tool_call>", ()) == "mouse_click(512, 340)"
    assert prompt.parse("import os", ()) is None


@pytest.mark.parametrize(("reward", "won"), [(0.5, True), (0.4, False), (None, False)])
def test_a_script_wins_by_the_threshold_where_the_score_is_the_reward(reward: float | None, won: bool) -> None:
    last = Observation(text="The screen.", done=True, reward=reward)
    played = PlayedScript(actions=("done()",), seen=(Observation(text="Do it."), last), threshold=0.5)
    assert played.won is won and demonstration_of(played).won is won


def test_an_episode_of_a_task_without_a_script_is_counted_as_unlabelled() -> None:
    """No task of OSWorld has one; neither labels nor a machine are had for it, and a warm start is refused."""
    line = {"type": "vm_command_line", "command": "echo x", "shell": True}
    asked = {"func": "exact_match", "result": line, "expected": {"type": "rule", "rules": {"expected": "x"}}}
    task = task_of_scenario(
        scenario_of_json({"id": "7", "instruction": "Do it.", "config": [], "evaluator": asked}), split="train"
    )
    config, env = configured(), Desktop()
    played = PlayedEpisode(
        trajectory_id="a", task_id=task.task_id, actions=["noop(100)", "done()"], answers=["The screen."] * 2
    )
    found = label_episodes([played], {task.task_id: task}, labeller=env, config=config)
    assert found.unlabelled == 1 and found.frame.is_empty()
    with pytest.raises(UserError, match=r"set warm_start\.enabled to false"):
        env.demonstrate(task, config, seed=1, random_share=0.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train_rm.replay=1"], r"train_rm\.replay: pictures of earlier iterations do not train again; leave the key"),
        (
            ["generator.lora=adapter", "generator.backend=vllm", "train_policy.lora.rank=8"],
            r"train_policy trains in the vision tower; set train_policy\.vision to frozen",
        ),
    ],
)
def test_what_pictures_do_not_allow_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured(*overrides)


def test_the_published_run_has_the_papers_models_and_is_protected() -> None:
    assert_published("osworld-qwen3-vl-8b", reward="Qwen/Qwen3-VL-8B-Thinking", votes=3)
