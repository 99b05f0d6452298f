"""Ground truth about the rounds of an episode: was the call useful, was its result used, is the answer right.

| step | score | reason |
|---|---|---|
| a call whose result is the right answer, or a step of the teacher's way to it | +1 | `CALCULATES` |
| a call with another result | -1 | `MISSES` |
| a call that cannot be read, names no tool of ours, or whose program failed | -1 | `FAILED` |
| a program that was sent before in the episode | -1 | `REPEATED` |
| an answer that is right, and that a result says | +1 | `READ` |
| an answer that is right, and that no result says | +1 | `UNREAD` |
| an answer that is wrong as the last result is, or another than it | -1 | `MISLED`, `IGNORED` |
| a wrong answer without any result | -1 | `GUESSED` |

`labels_seen` reads what the tool really answered, so it labels episodes of any model. `labels_of_actions` has the
actions alone, and nothing is run here: it knows what the teacher's programs print, what programs of our families'
shapes print, and what is told of calls that cannot be read or compiled. Where it meets another program it labels
nothing rather than guess.

There is ground truth about questions that a family has made (`Question.family`), and about no others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rla.envs.adapters.reasoning_families import NoItem
from rla.envs.adapters.reasoning_items import NAME, answer_score
from rla.envs.tool.answer_reading import final_answer, number_in
from rla.envs.tool.calls import TOOL, CallFormat, Malformed
from rla.envs.tool.demonstrating import (
    broken_call,
    call_reply,
    final_reply,
    made_of_task,
    near_answer,
    neighbours,
    slipped_item,
    syntax_fault,
)
from rla.envs.tool.episode import TAKEN, UNREADABLE
from rla.envs.tool.families.generated import Made
from rla.envs.tool.families.registry import known_output
from rla.envs.tool.generating import package_and_item, remade
from rla.envs.tool.params import ToolParams
from rla.envs.tool.questions import Question, question_of
from rla.envs.tool.results import cut_text, harmless
from rla.envs.views import Labelled
from rla.errors import UserError
from rla.store.records import Task

CALCULATES, MISSES = "it computes what is asked", "it computes something else"
FAILED, REPEATED = "the call failed", "the call was made before"
READ, UNREAD = "the answer is the result", "the answer is right"
MISLED, IGNORED, GUESSED = "the result was wrong", "the answer is not the result", "no result says so"
LONGEST_COMPILED = 2000  # characters of a program that is compiled to see whether it can be
ROUND_REASONS = (CALCULATES, MISSES, FAILED, REPEATED, READ, UNREAD, MISLED, IGNORED, GUESSED)
FAILURES = ("Error", "Exit", "Interrupt")  # how the name of an exception ends
TOLD = ("The call ", "The program ", "There is no ", "Not run: ", f"{TOOL} needs ")


def labels_seen(task: Task, calls: CallFormat, actions: Sequence[str], answers: Sequence[str]) -> list[Labelled]:
    """One label per action. `answers`: what each was answered, the end of the episode included. None where nothing is
    known of the question.
    """
    asked = question_of(task)
    known = known_question(asked)
    if known is None:
        return []
    return [
        label_of_step(asked, known, calls, actions[:number], answers[:number], action, answer)
        for number, (action, answer) in enumerate(zip(actions, answers, strict=True))
    ]


def labels_of_actions(
    task: Task, calls: CallFormat, own: ToolParams, actions: Sequence[str], *, others: int = 0, seed: int = 0
) -> list[list[Labelled]]:
    """Per step the action, then up to `others` of the replies that a good and a weak teacher give in its place. Empty
    where the tool's answer to an action is not known without running it.
    """
    asked = question_of(task)
    known = known_question(asked)
    told = [told_of(asked, known, calls, own, action) for action in actions] if known is not None else []
    answers = [answer for answer in told if answer is not None]
    if known is None or len(answers) < len(actions):
        return []
    rng, steps = random.Random(seed), list[list[Labelled]]()
    for number, action in enumerate(actions):
        offers = [one for one in replies_instead(task, asked, calls, answers[:number], rng) if one != action]
        tried = [(one, told_of(asked, known, calls, own, one)) for one in rng.sample(offers, min(others, len(offers)))]
        steps.append(
            [
                label_of_step(asked, known, calls, actions[:number], answers[:number], reply, answer)
                for reply, answer in [(action, answers[number]), *tried]
                if answer is not None
            ]
        )
    return steps


def known_question(asked: Question) -> Made | None:
    """What a family knows of the question; where the family has no teacher, its answer alone."""
    try:
        found = remade(asked)
        item = package_and_item(asked)
    except (NoItem, UserError):
        return None
    return found or (Made(question=asked.text, answer=asked.answer, rounds=()) if item is not None else None)


def label_of_step(
    asked: Question,
    known: Made,
    calls: CallFormat,
    actions: Sequence[str],
    answers: Sequence[str],
    action: str,
    answer: str,
) -> Labelled:
    """`actions` and `answers`: those before this step."""
    if calls.parse(action).calls:
        score, reason = _judged_call(asked, known, calls, actions, action, answer)
    else:
        score, reason = _judged_answer(asked, action, answers)
    return Labelled(action=action, next_observation=answer, score=score, reason=reason)


def right_answer(asked: Question, text: str) -> bool:
    """Whether a generated question accepts the text. Only verifiers that run nothing are asked (`answer_score`)."""
    if text.strip() == asked.answer:
        return True
    if asked.check == "number":
        said = number_in(text)
        return said is not None and said == number_in(asked.answer)
    found = package_and_item(asked)
    return found is not None and found[0] == NAME and answer_score(found[1], text) >= 1.0


def told_of(asked: Question, known: Made, calls: CallFormat, own: ToolParams, action: str) -> str | None:
    """What the environment answers to a reply, without running anything; None where that is not known."""
    read = calls.parse(action).calls
    if not read:
        return TAKEN
    if not own.has_tool or len(read) > 1:
        return None
    (call,) = read
    if isinstance(call, Malformed):
        return UNREADABLE if own.on_malformed == "end" else _cut(harmless(call.reason), own)
    code = call.arguments.get("code")
    if call.name != TOOL or not isinstance(code, str):
        return None
    printed = _printed(asked, known, code)
    return None if printed is None else _cut(printed, own)


def replies_instead(
    task: Task, asked: Question, calls: CallFormat, results: Sequence[str], rng: random.Random
) -> list[str]:
    """What might be replied after `results`: the teacher's call, a slip, a broken call, the last result, a guess. None
    twice. A right answer that no result says is left out: a judge cannot know that it is right.
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


def failed_result(text: str) -> bool:
    """Whether a result says that nothing was computed: a sentence of the tool, or an exception as its last line."""
    last = text.strip().rsplit("\n", 1)[-1]
    name = last.partition(":")[0]
    return last.startswith(TOLD) or (name.isidentifier() and name.endswith(FAILURES))


def _judged_call(
    asked: Question, known: Made, calls: CallFormat, actions: Sequence[str], action: str, answer: str
) -> tuple[int, str]:
    read = calls.parse(action).calls
    if all(isinstance(call, Malformed) for call in read) or failed_result(answer):
        return -1, FAILED
    if any(calls.parse(earlier).calls == read for earlier in actions):
        return -1, REPEATED
    useful = {one.printed for one in known.rounds}
    results = [answer, *answer.split("\n\n")]
    good = any(text.strip() in useful or right_answer(asked, text) for text in results)
    return (1, CALCULATES) if good else (-1, MISSES)


def _judged_answer(asked: Question, action: str, answers: Sequence[str]) -> tuple[int, str]:
    said = final_answer(action)
    results = [text.strip() for text in answers if not failed_result(text)]
    repeats = said is not None and any(said == text or right_answer(asked, text) for text in results)
    if said is not None and right_answer(asked, said):
        return 1, READ if repeats else UNREAD
    if not results:
        return -1, GUESSED
    return -1, MISLED if said == results[-1] else IGNORED


def _printed(asked: Question, known: Made, code: str) -> str | None:
    """By what is known most cheaply first."""
    taught = {one.program: one.printed for one in known.rounds}
    if code in taught:
        return taught[code]
    output = known_output(code)
    if output is not None:
        return output
    if len(code) <= LONGEST_COMPILED and (fault := syntax_fault(code)):
        return harmless(fault)
    others = (one for made in neighbours(asked) for one in made.rounds)
    return next((one.printed for one in others if one.program == code), None)


def _cut(text: str, own: ToolParams) -> str:
    return cut_text(text, own.result_chars, own.cut)
