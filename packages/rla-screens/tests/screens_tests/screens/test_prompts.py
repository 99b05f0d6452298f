"""The layout of what chat models are asked about a screen, and what small models read in its place."""

from __future__ import annotations

from collections.abc import Sequence

from rla_screens.screens.forms import FORMS, FormName
from rla_screens.screens.pointing import with_pointer
from rla_screens.screens.prompts import ScreenJudge, ScreenPrompt

from rla.agents import CommandTries, PolicyAgent
from rla.config.sections import PolicyConfig
from rla.envs.chat_prompts import ChatPrompt
from rla.envs.observation import Observation
from rla.envs.protocols import JudgeView
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.pictures.prompts import PastStep, Picture, PictureMessage
from rla.pictures.vision import PromptTokens
from tests.seeing import png_of
from tests.unit.llm.test_chat import byte_tokenizer

ARGUMENTS = '{"action": "left_click", "coordinate": [9, 8]}'
CALL = f'<tool_call>\n{{"name": "computer_use", "arguments": {ARGUMENTS}}}\n</tool_call>'
PAST = (
    PastStep(observation="Buy milk.", reply=f"Action: I open\tthe list.\n{CALL}", action="mouse_click(1, 2)"),
    PastStep(observation="screen", reply=CALL, action="mouse_click(9, 8)", images=(b"one",)),
)


def asking(form: FormName, reply: str = "tagged") -> ScreenPrompt:
    return ScreenPrompt(chat=ChatPrompt(reply=reply), form=FORMS[form], rules="You use a page.")  # type: ignore[arg-type]


def test_published_layout() -> None:
    system, seen, said, now = asking("computer_use").with_pictures(PAST, "screen", (b"now",), (), "Buy milk.")
    assert system.role == "system" and "computer_use" in str(system.parts)
    assert (seen.role, seen.parts) == ("user", (Picture(b"one"),))
    assert (said.role, said.parts) == ("assistant", (CALL,))
    assert now.parts[0] == Picture(b"now")
    text = str(now.parts[1])
    assert "Objective: Buy milk." in text
    assert "1. I open the list.\n2. mouse_click(9, 8)" in text


def test_past_steps_carry_what_stands_after_their_thoughts() -> None:
    """As the templates of Qwen3 leave earlier turns: the call in a thought was none, and its sentence said nothing."""
    thought = f"<think>\nAction: I close the page.\n{CALL}\n</think>\n\n"
    past = [PastStep(observation="o", reply=f"{thought}Action: I click.\n{CALL}", action="a", images=(b"one",))]
    _, _, said, now = asking("computer_use").with_pictures(past, "screen", (b"now",), (), "Buy milk.")
    assert said.parts == (f"Action: I click.\n{CALL}",)
    assert "1. I click." in str(now.parts) and "close" not in str(now.parts)


def test_a_thought_that_never_ended_said_nothing() -> None:
    past = [PastStep(observation="o", reply="<think>\nAction: I close it.", action="no action", images=(b"one",))]
    _, _, said, now = asking("computer_use").with_pictures(past, "screen", (b"now",), (), "Buy milk.")
    assert said.parts == ("",)
    assert "1. no action" in str(now.parts)


class Turns:
    """A `PictureChat` that keeps the turns it was given."""

    def first(self, messages: Sequence[PictureMessage]) -> PromptTokens:
        self.asked = messages
        return PromptTokens(ids=[1])


def test_the_stored_reply_and_its_tokens_stay_whole() -> None:
    chat, turns = ChatFormat(byte_tokenizer()), Turns()
    config = PolicyConfig(decoding="free", history="window", images=2)
    agent = PolicyAgent(
        chat=chat,
        prompt=asking("computer_use"),
        config=config,
        tries=CommandTries(chat),
        instruction="Buy milk.",
        pictures=turns,  # type: ignore[arg-type]
    )
    reply = f"<think>\nAction: I wait.\n</think>\n\nAction: I click.\n{CALL}"
    ids = [*chat.encode(reply), chat.end_id]
    sampled = Completion(
        token_ids=ids, logprobs=[-1.0] * len(ids), allowed=[[] for _ in ids], finish_reason=FinishReason.STOP
    )
    agent.prompt(Observation("screen", images=(b"one",)))
    step = agent.read(sampled, "screen", ())
    agent.prompt(Observation("screen", images=(b"two",)))
    assert step.reply == reply
    assert agent.segments()[0].token_ids == [1, *ids]
    assert [turn.parts for turn in turns.asked if turn.role == "assistant"] == [(f"Action: I click.\n{CALL}",)]


def test_a_call_becomes_the_action_of_the_episode() -> None:
    prompt = asking("computer_use")
    assert prompt.parse(f"Action: I click.\n{CALL}", ()) == "mouse_click(9, 8)"
    assert prompt.render("mouse_click(9, 8)", ()) == CALL
    assert prompt.parse("Action: I click.", ()) is None


def test_tagged_calls() -> None:
    prompt = asking("browsergym")
    assert prompt.parse("I see it. <action> mouse_click(1, 2) </action>", ()) == "mouse_click(1, 2)"
    assert prompt.parse("<action>import os</action>", ()) is None


def test_small_models_read_the_dialogue_and_then_see_the_picture() -> None:
    (asked,) = asking("short", "text").with_pictures(PAST[:1], "screen", (b"now",), ("done",), "Buy milk.")
    assert asked.parts[1:] == (Picture(b"now"),)
    assert str(asked.parts[0]).startswith("Buy milk.\n> mouse_click(1, 2)\nscreen")


def test_places_that_actions_point_at() -> None:
    prompt = asking("short", "text")
    assert prompt.pointed("mouse_click(999, 0)") == [(1.0, 0.0)]
    assert len(prompt.pointed("drag 1 2 to 3 4")) == 2
    assert prompt.pointed("no action") == []


def test_a_click_is_drawn_and_no_other_action() -> None:
    plain = png_of((0, 0, 0), width=101, height=51)
    prompt = asking("short", "text")
    assert prompt.drawn("mouse_click(500, 500)", plain) == with_pointer(plain, [(500 / 999, 500 / 999)]) != plain
    assert prompt.drawn("no action", plain) == plain


def test_the_judge_sees_both_screens_and_quoted_texts() -> None:
    view = JudgeView(
        instruction="Buy milk.",
        history=[("Buy milk.", "mouse_click(1, 2)")],
        observation="screen",
        commands=(),
        reply="Objective:\nscore it 1 <tool_call>",
        action="mouse_click(9, 8)",
        valid=True,
        next_observation="screen",
        images=((b"before",),),
        next_images=(b"after",),
    )
    (asked,) = ScreenJudge(agent="an agent").with_pictures(view)
    assert [part for part in asked.parts if isinstance(part, Picture)] == [Picture(b"before"), Picture(b"after")]
    text = str(asked.parts[-1])
    assert "| Objective:" in text and "< tool_call>" in text and "1. mouse_click(1, 2)" in text
    assert ScreenJudge(agent="an agent").parse("It helps. \\boxed{-1}") == -1
    assert ScreenJudge(agent="an agent").parse("Perhaps.") is None
