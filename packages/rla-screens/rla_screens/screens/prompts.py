"""Prompts for chat models about a screen: a policy chooses its next deed, a judge rates one step.

The layout is the published one, in our own words. The policy sees the last screenshots, each with its own reply
(without its thoughts), then the current screen, the objective, and all earlier actions as a list. The judge sees the
screen before the action, the objective, the reply and the screen after it, and boxes its vote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rla.envs.chat_prompts import ANSWER, QUOTED, ChatJudge, ChatPrompt, plain_tags, quoted, tagged, user
from rla.envs.protocols import JudgeView, Message
from rla.pictures.prompts import PastStep, Picture, PictureMessage
from rla.text import after_thinking
from rla_screens.screens.computer_use import SCHEMA
from rla_screens.screens.deeds import LAST
from rla_screens.screens.forms import ScreenForm, deed_of_action
from rla_screens.screens.pointing import with_pointer

CALLS = (
    "Actions: mouse_click(x, y, button='left'), mouse_dblclick(x, y), mouse_move(x, y), mouse_down(x, y), "
    "mouse_up(x, y), mouse_drag_and_drop(from_x, from_y, to_x, to_y), scroll(delta_x, delta_y), keyboard_type('text'), "
    "keyboard_press('Control+a'), keyboard_down('key'), keyboard_up('key'), noop(wait_ms=1000), done(), fail(). "
    "x and y are from 0 to 999: 0 0 is the upper left corner and 999 999 the lower right one. "
    "Give one action at a time."
)
WORDS = (
    'Actions: click X Y, drag X Y to X Y, type "text", press KEY, scroll up, scroll down, done. X and Y are from 0 to '
    "99: 0 0 is the upper left corner and 99 99 the lower right one. Give one action at a time."
)
TOOL = (
    "# Tools\n\nYou use a computer by calls of this function:\n<tools>\n{schema}\n</tools>\n\n"
    "# Replies\n\nWrite one line, Action: and in one sentence what you do. Then write exactly one call:\n<tool_call>\n"
    '{{"name": ..., "arguments": ...}}\n</tool_call>\nIf the task is finished, call it with terminate.'
)
CRITERIA = (
    "Score the step 1 if all of these hold: the action serves the objective; it can be done on the screen before it, "
    "and the screen after it fits; and it brings the task visibly forward. Otherwise score it -1."
)
SENTENCE = "Action:"
LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenPrompt:
    """`PolicyPrompt` and `PicturesPolicy`. `chat`: the prompt for small models, and for episodes without pictures.
    `rules`: describes the application on the screen.
    """

    chat: ChatPrompt
    form: ScreenForm
    rules: str

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        system = [] if self._small else [Message(role="system", content=self._told())]
        return [*system, *self.chat.opening(observation, commands)]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return self.chat.turn(observation, commands, instruction)

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        return self.chat.window(history, observation, commands, instruction)

    def with_pictures(
        self,
        history: Sequence[PastStep],
        observation: str,
        images: Sequence[bytes],
        commands: Sequence[str],
        instruction: str,
    ) -> list[PictureMessage]:
        """Small models read the dialogue, and then see the pictures."""
        shown = [png for step in history for png in step.images]
        if self._small:
            (asked,) = self.window(
                [(one.observation, one.action) for one in history], observation, commands, instruction
            )
            pictures = map(Picture, [*shown, *images])
            return [PictureMessage(role="user", parts=(asked["content"], *pictures))]
        turns = [PictureMessage(role="system", parts=(self._told(),))]
        for step in history:
            if step.images:
                turns.append(PictureMessage(role="user", parts=tuple(map(Picture, step.images))))
                turns.append(PictureMessage(role="assistant", parts=(step.said,)))
        said = [f"{number}. {_one_sentence(step)}" for number, step in enumerate(history, 1)]
        parts = ["Objective: " + plain_tags(instruction), "Actions so far:\n" + ("\n".join(said) or "(none)")]
        if observation.strip() not in ("", instruction.strip()):
            parts.insert(1, plain_tags(observation.strip()))
        turns.append(PictureMessage(role="user", parts=(*map(Picture, images), "\n\n".join(parts))))
        return turns

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The action of an episode; None if the reply has none. Points need not be on the grid of `commands`."""
        reply = after_thinking(reply)
        if self.form.name == "computer_use":
            text: str | None = reply
        else:
            text = tagged(reply) if self.chat.reply == "tagged" else reply.strip()
        deed = self.form.read(text) if text else None
        return None if deed is None else self.form.action(deed)

    def render(self, action: str, commands: Sequence[str]) -> str:
        if self.form.name != "computer_use":
            return self.chat.render(action, commands)
        deed = deed_of_action(action)
        return action if deed is None else self.form.write(deed)

    def drawn(self, action: str, png: bytes) -> bytes:
        """`rla_study.showing.episodes.DrawsActions`."""
        places = self.pointed(action)
        return with_pointer(png, places) if places else png

    def pointed(self, action: str) -> list[tuple[float, float]]:
        """The place, or both ends of a drag, as shares of width and height; empty for other actions."""
        deed = deed_of_action(action)
        ends = () if deed is None else (deed.at, deed.to)
        return [(end[0] / LAST, end[1] / LAST) for end in ends if end is not None]

    @property
    def _small(self) -> bool:
        return self.chat.reply == "text" and self.form.name != "computer_use"

    def _told(self) -> str:
        if self.form.name == "computer_use":
            return f"{self.rules}\n\n{TOOL.format(schema=json.dumps(SCHEMA))}"
        answer = ANSWER.get(self.chat.reply, "")
        return f"{self.rules} {WORDS if self.form.name == 'short' else CALLS} {answer}".strip()


def _one_sentence(step: PastStep) -> str:
    """The policy's own description of its action, if it gave one, else the action; on one line."""
    line = next((one for one in step.said.splitlines() if one.strip().startswith(SENTENCE)), "")
    said = line.strip().removeprefix(SENTENCE).strip() or step.action
    return plain_tags(" ".join(said.split())[:LONGEST_SENTENCE])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenJudge:
    """`JudgePrompt` and `PicturesJudge` for chat models. `agent`: describes the judged agent."""

    agent: str

    def messages(self, view: JudgeView) -> list[Message]:
        return [user("\n\n".join([self._role(), self._quoted(view)]))]

    def with_pictures(self, view: JudgeView) -> list[PictureMessage]:
        before = [Picture(png) for screen in view.images for png in screen]
        after = [Picture(png) for png in view.next_images]
        parts: tuple[str | Picture, ...] = (
            self._role() + "\n\nThe screen before the action:",
            *before,
            "The screen after the action:",
            *after,
            self._quoted(view),
        )
        return [PictureMessage(role="user", parts=parts)]

    def parse(self, reply: str) -> int | None:
        return self._chat.parse(reply)

    def render(self, score: int, reason: str) -> str:
        return self._chat.render(score, reason)

    def replies(self) -> tuple[str, ...]:
        return ()

    @property
    def _chat(self) -> ChatJudge:
        return ChatJudge(rubric="")

    def _role(self) -> str:
        return (
            f"You judge one step of {self.agent}. You see the screen before the action and the one after it. "
            f"{CRITERIA} {QUOTED} Think first, then give the score as \\boxed{{1}} or \\boxed{{-1}}."
        )

    def _quoted(self, view: JudgeView) -> str:
        earlier = [f"{number}. {' '.join(action.split())}" for number, (_, action) in enumerate(view.history, 1)]
        return quoted(
            {
                "Objective": view.instruction,
                "Earlier actions": "\n".join(earlier) or "(none)",
                "The agent's reply": view.reply,
                "Executed action": view.action if view.valid else "(none: the reply held no action)",
            }
        )
