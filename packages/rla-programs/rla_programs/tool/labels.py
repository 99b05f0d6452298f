"""Ground truth about the rounds of an episode: was the call useful, was its result used, is the answer right.

| step | score | reason |
|---|---|---|
| a call whose result is the right answer, or a step of the teacher's solution | +1 | `CALCULATES` |
| a call with another result | -1 | `MISSES` |
| a round in which no call ran without an error (by status), or none printed anything | -1 | `FAILED` |
| a program that was sent before in the episode | -1 | `REPEATED` |
| a right answer that a result contains | +1 | `READ` |
| a right answer that no result contains | +1 | `UNREAD` |
| a wrong answer that equals the last result, or differs from it | -1 | `MISLED`, `IGNORED` |
| a wrong answer without any result | -1 | `GUESSED` |

`labels_seen` reads the tool's real answers, so it labels episodes of any model. `labels_of_actions` has only the
actions, and nothing is run here: it knows the outputs of the teacher's programs and of programs that match our
families, and the messages for calls that cannot be parsed or compiled. If it meets any other program, it gives no
labels instead of guessing.

Only questions made by a family (`Question.family`) have ground truth.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rla_bridges.adapters.reasoning_families import NoItem
from rla_bridges.adapters.reasoning_items import NAME, answer_score

from rla.envs.protocols import Labelled, SeenStep
from rla.errors import UserError
from rla.store.records import Task
from rla_programs.execution import ExitStatus
from rla_programs.tool.answer_reading import final_answer, number_in
from rla_programs.tool.calls import TOOL, CallFormat, Malformed
from rla_programs.tool.demonstrating import (
    broken_call,
    call_reply,
    final_reply,
    made_of_task,
    near_answer,
    neighbours,
    slipped_item,
    syntax_fault,
)
from rla_programs.tool.episode import TAKEN, UNREADABLE
from rla_programs.tool.families.generated import Made
from rla_programs.tool.families.registry import known_output
from rla_programs.tool.generating import package_and_item, remade
from rla_programs.tool.params import ToolParams
from rla_programs.tool.questions import Question, question_of
from rla_programs.tool.results import SILENT, STATUSES, cut_text, harmless

CALCULATES, MISSES = "it computes what is asked", "it computes something else"
FAILED, REPEATED = "the call failed", "the call was made before"
READ, UNREAD = "the answer is the result", "the answer is right"
MISLED, IGNORED, GUESSED = "the result was wrong", "the answer is not the result", "no result says so"
LONGEST_COMPILED = 2000  # characters of a program that is compiled to check its syntax
ROUND_REASONS = (CALCULATES, MISSES, FAILED, REPEATED, READ, UNREAD, MISLED, IGNORED, GUESSED)
SUCCEEDED = STATUSES[ExitStatus.OK]


def labels_seen(task: Task, calls: CallFormat, steps: Sequence[SeenStep]) -> list[Labelled]:
    """One label per step, including the end of the episode. Empty if nothing is known about the question."""
    asked = question_of(task)
    known = _known_question(asked)
    if known is None:
        return []
    return [_label_of_step(asked, known, calls, steps[:number], step) for number, step in enumerate(steps)]


def labels_of_actions(
    task: Task, calls: CallFormat, own: ToolParams, actions: Sequence[str], *, others: int = 0, seed: int = 0
) -> list[list[Labelled]]:
    """For each step the action, then up to `others` of the replies that a good and a weak teacher give instead. Empty
    if the tool's answer to an action is not known without running it.
    """
    asked = question_of(task)
    known = _known_question(asked)
    told = [_step_told(asked, known, calls, own, action) for action in actions] if known is not None else []
    steps = [step for step in told if step is not None]
    if known is None or len(steps) < len(actions):
        return []
    rng, labels = random.Random(seed), list[list[Labelled]]()
    for number, step in enumerate(steps):
        results = [earlier.answer for earlier in steps[:number]]
        offers = [one for one in _replies_instead(task, asked, calls, results, rng) if one != step.action]
        tried = [_step_told(asked, known, calls, own, one) for one in rng.sample(offers, min(others, len(offers)))]
        labels.append(
            [_label_of_step(asked, known, calls, steps[:number], one) for one in [step, *tried] if one is not None]
        )
    return labels


def _known_question(asked: Question) -> Made | None:
    """The family's knowledge of the question; if the family has no teacher, only its answer."""
    try:
        found = remade(asked)
        item = package_and_item(asked)
    except (NoItem, UserError):
        return None
    return found or (Made(question=asked.text, answer=asked.answer, rounds=()) if item is not None else None)


def _label_of_step(
    asked: Question, known: Made, calls: CallFormat, before: Sequence[SeenStep], step: SeenStep
) -> Labelled:
    """`before`: the steps before this one."""
    if calls.parse(step.action).calls:
        score, reason = _judged_call(asked, known, calls, before, step)
    else:
        score, reason = _judged_answer(asked, step.action, before)
    return Labelled(action=step.action, next_observation=step.answer, score=score, reason=reason)


def _right_answer(asked: Question, text: str) -> bool:
    """Whether a generated question accepts the text. Only verifiers that run nothing are used (`answer_score`)."""
    if text.strip() == asked.answer:
        return True
    if asked.check == "number":
        said = number_in(text)
        return said is not None and said == number_in(asked.answer)
    found = package_and_item(asked)
    return found is not None and found[0] == NAME and answer_score(found[1], text) >= 1.0


def _step_told(asked: Question, known: Made, calls: CallFormat, own: ToolParams, action: str) -> SeenStep | None:
    """A reply with the environment's answer to it, without running anything; None if that is unknown."""
    read = calls.parse(action).calls
    if not read:
        return SeenStep(action=action, answer=TAKEN)
    if not own.has_tool or len(read) > 1:
        return None
    (call,) = read
    if isinstance(call, Malformed):
        text = UNREADABLE if own.on_malformed == "end" else _cut(harmless(call.reason), own)
        return SeenStep(action=action, answer=text, statuses=("malformed",))
    code = call.arguments.get("code")
    if call.name != TOOL or not isinstance(code, str):
        return None
    found = _printed(asked, known, code)
    return None if found is None else SeenStep(action=action, answer=_cut(found[0], own), statuses=(found[1],))


def _replies_instead(
    task: Task, asked: Question, calls: CallFormat, results: Sequence[str], rng: random.Random
) -> list[str]:
    """Possible replies after `results`, without duplicates: the teacher's call, a slip, a broken call, the last result,
    a guess. A right answer that no result contains is left out, because a judge cannot know that it is right.
    """
    if remade(asked) is None:
        return []
    rounds = made_of_task(task, asked).rounds
    slip = slipped_item(asked, rng)
    good = call_reply(calls, rounds[min(len(results), len(rounds) - 1)].program)
    replies = [good, broken_call(good, calls, rounds[0].program, rng)[0]]
    replies += [call_reply(calls, slip.rounds[-1].program)] if slip is not None else []
    replies += [final_reply(calls, near_answer(asked, rng))]
    replies += [final_reply(calls, results[-1])] if results and "\n" not in results[-1] else []
    return list(dict.fromkeys(replies))


def failed_round(step: SeenStep) -> bool:
    """Whether the calls of a step computed nothing readable. The text of the output does not decide, because it may
    look like an error.
    """
    return SUCCEEDED not in step.statuses or step.answer.strip() == SILENT


def _judged_call(
    asked: Question, known: Made, calls: CallFormat, before: Sequence[SeenStep], step: SeenStep
) -> tuple[int, str]:
    if failed_round(step):
        return -1, FAILED
    read, answer = calls.parse(step.action).calls, step.answer
    if any(calls.parse(earlier.action).calls == read for earlier in before):
        return -1, REPEATED
    useful = {one.printed for one in known.rounds}
    results = [answer, *answer.split("\n\n")]
    good = any(text.strip() in useful or _right_answer(asked, text) for text in results)
    return (1, CALCULATES) if good else (-1, MISSES)


def _judged_answer(asked: Question, action: str, before: Sequence[SeenStep]) -> tuple[int, str]:
    said = final_answer(action)
    results = [step.answer.strip() for step in before if not failed_round(step)]
    repeats = said is not None and any(said == text or _right_answer(asked, text) for text in results)
    if said is not None and _right_answer(asked, said):
        return 1, READ if repeats else UNREAD
    if not results:
        return -1, GUESSED
    return -1, MISLED if said == results[-1] else IGNORED


def _printed(asked: Question, known: Made, code: str) -> tuple[str, str] | None:
    """The result with its status, from the cheapest source that knows it."""
    taught = {one.program: one.printed for one in known.rounds}
    if code in taught:
        return taught[code], SUCCEEDED
    output = known_output(code)
    if output is not None:
        return output, SUCCEEDED
    if len(code) <= LONGEST_COMPILED and (fault := syntax_fault(code)):
        return harmless(fault), "error"
    others = (one for made in neighbours(asked) for one in made.rounds)
    return next(((one.printed, SUCCEEDED) for one in others if one.program == code), None)


def _cut(text: str, own: ToolParams) -> str:
    return cut_text(text, own.result_chars, own.cut)
