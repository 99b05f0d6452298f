"""What episodes of `tool` vote for, by the estimator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rla_programs.answering.at_k import majority_values
from rla_programs.answering.published_at_k import published_majority_values
from rla_programs.answering.voting import AnswerMetrics, SaidEpisode, answer_figures, class_of_answers, voted_episodes
from rla_programs.tool.questions import Question, task_of_question

from tests.unit.builders import configured, step, task, trajectory
from tests.unit.metrics.test_success import episode, shard

TASK = task_of_question(Question(text="?", check="number", answer="1000", source="s"), split="test")
CALL = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print(1)"}}\n</tool_call>'


def vote(
    *actions: str, published: bool, ended: bool = True, answers: Sequence[str] = (), answer: str = "checked"
) -> str | None:
    estimator = "published" if published else "unbiased"
    config = configured(f"evaluation.estimator={estimator}", f"env.own.answer={answer}", env="tool")
    class_of = class_of_answers(config, [TASK])
    assert class_of is not None
    said = SaidEpisode(
        task_id=TASK.task_id, actions=actions, answers=answers or ["x" * 200] * len(actions), ended=ended
    )
    return class_of(said)


@pytest.mark.parametrize(
    ("reply", "unbiased", "published"),
    [
        ("\\boxed{1,000}", "1000", "1,000"),
        ("\\boxed{ 1000 }", "1000", " 1000 "),
        ("\\boxed{1e3}", "1000", "1e3"),
        ("I do not know", None, None),
        (f"\\boxed{{1000}}\n{CALL}", None, None),  # a call
        ("\\boxed{1000}\n<tool_call>\n{", None, None),  # a call that cannot be read
    ],
)
def test_a_class_of_equal_answers_and_the_text_itself(reply: str, unbiased: str | None, published: str | None) -> None:
    assert vote(reply, published=False) == unbiased
    assert vote(reply, published=True) == published


def test_a_reply_that_was_cut_or_not_understood_has_no_vote() -> None:
    assert vote("\\boxed{1000}", published=False, ended=False) is None
    assert vote("\\boxed{1000}", published=True, ended=False) is None


def test_the_published_text_splits_what_is_one_class_for_us() -> None:
    """Of five answers three are the same number in three spellings, two agree on a wrong text."""
    replies = ["\\boxed{1000}", "\\boxed{1,000}", "\\boxed{1e3}", "\\boxed{7}", "\\boxed{7}"]
    right = [True] * 3 + [False] * 2
    ours = [vote(reply, published=False) for reply in replies]
    theirs = [vote(reply, published=True) for reply in replies]
    assert majority_values(ours, right, [5], np.random.default_rng(0)) == [1.0]
    assert published_majority_values(theirs, right, [5])[0] < published_majority_values(ours, right, [5])[0]
    assert theirs == ["1000", "1,000", "1e3", "7", "7"]


def test_with_published_answers_the_text_is_that_of_the_whole_response_however_it_ends() -> None:
    """As the published code has it: the prediction of a response that was cut, or ends in a call, is its last box."""
    assert vote("\\boxed{1000}\n!!", published=True, ended=False, answer="published") == "1000"
    assert vote("\\boxed{7} so", "Done.", published=True, answers=["4", ""], answer="published") == "7"
    assert vote("\\boxed{7}" + "." * 92, published=True, answer="published") is None
    assert vote(f"\\boxed{{7}}\n{CALL}", published=False, answer="published") is None


def test_published_answers_are_equal_as_texts() -> None:
    assert vote("\\boxed{1,000}", published=False, answer="published") == "1,000"


def test_an_environment_whose_answers_are_whole_actions_votes_by_them() -> None:
    """reasoning-gym makes one class of texts that differ in white space and capitals."""
    for estimator, expected in (("unbiased", "a b"), ("published", "A  b")):
        config = configured(f"evaluation.estimator={estimator}", env="reasoning-gym")
        class_of = class_of_answers(config, [TASK])
        assert class_of is not None
        said = SaidEpisode(task_id=TASK.task_id, actions=["A  b"], answers=[""], ended=True)
        assert class_of(said) == expected


def test_an_environment_without_answers_has_no_classes() -> None:
    assert class_of_answers(configured(env="alfworld"), [TASK]) is None


def test_answers_vote_where_they_have_classes(tmp_path: Path) -> None:
    """Of three episodes two say "b", which is wrong; one that could not be read and one that was cut have ended in no
    answer.
    """
    right = episode("a/0", "won", steps=1)
    said = ("b", "B")
    wrong = [trajectory(f"a/{i}", task_id="a", outcome=-1, steps=[step(action=text)]) for i, text in enumerate(said, 1)]
    unread = trajectory("a/3", task_id="a", outcome=-1, steps=[step(valid=False, action="no action")])
    cut = trajectory("a/4", task_id="a", outcome=-1, steps=[step(action="B", truncated=True)])
    folder = shard(tmp_path, right, *wrong, unread, cut)
    asked = []

    def class_of(said: SaidEpisode) -> str | None:
        asked.append((said.task_id, said.actions[-1], said.ended))
        return said.actions[-1].lower() if said.ended else None

    found = answer_figures(voted_episodes(folder, class_of), classes=True, estimator="unbiased")
    assert [name for name, _, _ in asked] == ["a"] * 5 and [ended for _, _, ended in asked] == [True] * 3 + [False] * 2
    assert found["maj"]["5"]["estimate"] == 0.0  # two votes against one
    # avg@5 = 1/5; pass@2 = 1 - C(4,2)/C(5,2) = 1 - 6/10
    assert found["avg"]["5"]["estimate"] == 0.2 and found["pass"]["2"]["estimate"] == 0.4


def test_what_was_said_is_read_in_order(tmp_path: Path) -> None:
    """The observation of a step is what was answered to the one before it."""
    steps = [step(observation="q", action="call 1"), step(observation="r 1", action="= 7")]
    folder = shard(tmp_path, trajectory("a/0", task_id="a", outcome=-1, steps=steps, final_observation="the end"))
    heard: list[SaidEpisode] = []

    def class_of(said: SaidEpisode) -> None:
        heard.append(said)

    list(voted_episodes(folder, class_of))
    assert heard == [
        SaidEpisode(task_id="a", actions=["call 1", "= 7"], answers=["r 1", "the end"], ended=True),
    ]
    found = answer_figures(voted_episodes(folder, None), classes=False, estimator="unbiased")
    assert "maj" not in found


def test_every_evaluation_has_figures_of_its_answers(tmp_path: Path) -> None:
    """Without classes where the environment has none; of episodes that count alone."""
    folder = shard(tmp_path, episode("a/0", "won"), episode("a/1", "env_error"))
    config, tasks = configured("evaluation.estimator=published", env="alfworld"), [task("a")]
    found = AnswerMetrics().measure(folder, config, held_out=tasks)["at_k"]
    assert (found["estimator"], found["n"]) == ("published", 1) and found["best"]["1"]["estimate"] == 1.0
    assert "maj" not in found and AnswerMetrics().measure(folder, config, held_out=()) == {}
