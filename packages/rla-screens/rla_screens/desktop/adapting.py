"""Edits of desktop tasks, as published: another verifier of the same scene, or another wording, with or without a hint.

    {"current_task": {"evaluator2": "Add the lines eggs and then salt ..."}}

The key must be one of the scene's own verifiers, so a model never writes the scoring. The text is an instruction for
the policy. It has to keep to the template of its verifier: at least half of the template's words stay. By rule, a task
becomes easier with a hint, and harder without one or with a verifier whose script is longer. `DesktopProof` checks the
rest.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rla.envs.authoring import changed_task, edit_values
from rla.envs.chat_prompts import QUOTED, plain_tags, quoted
from rla.envs.protocols import Course, Message, Phase, ProposalView, RejectedEdit
from rla.store.records import Direction, Task, content_id
from rla_screens.desktop.scenarios import LONGEST, Scenario, scenario_of
from rla_screens.desktop.tasks import asked_otherwise

CURRENT = "current_task"
DESKTOP_FIELDS: Mapping[str, type] = {CURRENT: dict}
KEPT = 0.5  # share of a template's words that an instruction keeps
MOST = 600  # characters of an instruction that a model writes
WORD = re.compile(r"\w+")
RUBRIC = (
    "You change tasks on which an agent learns to use a desktop computer. Make this one {wanted}. Choose one of the "
    "verifiers and write the instruction for it. Its meaning must stay that of the verifier's template, because the "
    "verifier does not change. To make a task easier, add hints on how to do it; to make it harder, leave hints out, "
    "or choose a verifier that asks more. Do not make it long."
)


def drawn_desktop_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` edits by rule."""
    rng, scenario = random.Random(seed), scenario_of(task)
    found = list(_rule_changes(scenario, rng, harder=direction == Direction.HARDER))
    edits = [json.dumps({CURRENT: {one.current: one.instruction}}, sort_keys=True) for one in found]
    return list(dict.fromkeys(edits))[:count]


def _rule_changes(scenario: Scenario, rng: random.Random, *, harder: bool) -> Iterator[Scenario]:
    """The likeliest first."""
    plain = asked_otherwise(scenario, scenario.current)
    hints = [scenario.hints[: number + 1] for number in range(len(scenario.hints))]
    others = [name for name in scenario.verifiers if name != scenario.current and name in scenario.solutions]
    rng.shuffle(others)
    own = len(scenario.solution)
    if harder:
        if scenario.instruction != plain.instruction:
            yield plain
        yield from (asked_otherwise(scenario, name) for name in others if len(scenario.solutions[name]) >= own)
    else:
        longer = [given for given in hints if len(" ".join(given)) + len(plain.instruction) > len(scenario.instruction)]
        yield from (asked_otherwise(scenario, scenario.current, hint=" ".join(given)) for given in longer)
        hint = scenario.hints[0] if scenario.hints else ""
        yield from (
            asked_otherwise(scenario, name, hint=hint) for name in others if len(scenario.solutions[name]) <= own
        )


def child_of_desktop(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The pending task that results from an edit of `task`. Raises RejectedEdit."""
    values, scenario = edit_values(edit, DESKTOP_FIELDS), scenario_of(task)
    given = values[CURRENT]
    if len(given) != 1 or not all(isinstance(text, str) for text in given.values()):
        raise RejectedEdit("current_task is not one verifier with its instruction")
    (name, text), first = next(iter(given.items())), scenario_of(root)
    if name not in scenario.verifiers or name not in scenario.templates:
        raise RejectedEdit(f"the scene has no verifier {name[:40]!r}")
    if name != first.current and name not in scenario.solutions:
        raise RejectedEdit("there is no script that shows how that verifier is satisfied")
    text = _checked_instruction(text, scenario.templates[name])
    child = replace(scenario, current=name, instruction=text)
    if likeness_of_scenario(child) in {*taken, likeness_of_scenario(scenario), likeness_of_scenario(first)}:
        raise RejectedEdit("there is such a task already")
    return changed_task(
        task,
        content=child.content(),
        edit={CURRENT: {name: text}},
        taken=taken,
        created=created,
        instruction=text,
        plan_length=len(child.solution) or None,
    )


def _checked_instruction(text: str, template: str) -> str:
    """One line of plain text that keeps to its template. Raises RejectedEdit."""
    plain = " ".join(plain_tags(text).split())
    if not plain or len(plain) > max(MOST, len(template)) or len(plain) > LONGEST or not plain.isprintable():
        raise RejectedEdit(f"an instruction is one line of text of at most {MOST} characters")
    wanted, said = Counter(WORD.findall(template.lower())), Counter(WORD.findall(plain.lower()))
    if (wanted & said).total() < KEPT * wanted.total():
        raise RejectedEdit("the instruction says something else than the template of its verifier")
    return plain


def likeness_of_scenario(scenario: Scenario) -> str:
    """Equal for tasks with the same scene, verifier and words."""
    scene = json.dumps(list(scenario.config), sort_keys=True)
    asked = json.dumps(scenario.evaluator, sort_keys=True)
    return content_id(scene, asked, " ".join(scenario.instruction.lower().split()))


def desktop_course(episodes: Sequence[Mapping[str, Any]]) -> Course:
    """Two phases: acting, and saying that the task is done. An episode that was stopped ended while acting."""
    steps, lost, won = {"acting": 0, "finishing": 0}, {"acting": 0, "finishing": 0}, 0
    verbs: Counter[str] = Counter()
    for episode in episodes:
        actions = [str(step["action"]) for step in episode["steps"]]
        verbs.update(action.split("(", 1)[0].split(" ", 1)[0] for action in actions)
        finished = bool(actions) and actions[-1].split("(", 1)[0] in ("done", "fail")
        steps["finishing"] += finished
        steps["acting"] += len(actions) - finished
        won += episode["outcome"] == 1
        if episode["outcome"] != 1:
            lost["finishing" if finished else "acting"] += 1
    abouts = {"acting": "using the applications", "finishing": "saying that the task is done"}
    phases = tuple(Phase(name=n, about=abouts[n], ended=lost[n], steps=steps[n]) for n in abouts)
    return Course(episodes=len(episodes), won=won, phases=phases, spent=tuple(verbs.most_common()))


class DesktopProposals:
    """A `ProposalPrompt` that contains the critic's summaries of the episodes as quoted data."""

    criticised = True

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        scenario = scenario_of(task)
        wanted = "harder, but still solvable" if view.direction == Direction.HARDER else "easier"
        known = _verifiers_for(scenario)
        templates = "\n".join(f"{name}: {scenario.templates[name]}" for name in known)
        parts = {
            "Task now": f"{scenario.current}: {scenario.instruction}",
            "Verifiers and templates": templates,
            "Episodes": f"{view.accuracy:.0%} are won. {view.critique}",
        }
        ending = 'Answer with one JSON object: {"current_task": {"name of a verifier": "instruction"}}.'
        return [{"role": "user", "content": f"{RUBRIC.format(wanted=wanted)} {QUOTED}\n\n{quoted(parts)}\n\n{ending}"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        text = {"type": "string", "minLength": 1, "maxLength": MOST}
        names = _verifiers_for(scenario_of(task))
        return {
            "type": "object",
            "properties": {
                CURRENT: {
                    "type": "object",
                    "properties": {name: text for name in names},
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": False,
                }
            },
            "required": [CURRENT],
            "additionalProperties": False,
        }


def _verifiers_for(scenario: Scenario) -> list[str]:
    """The verifiers that a task may change to: its own, and those with a script."""
    return [name for name in scenario.templates if name == scenario.current or name in scenario.solutions]
