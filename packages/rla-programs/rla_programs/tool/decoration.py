r"""The text around a question in the prompt `published`: the blocks of the published prompts, in other words.

    aime       solve + question + tool + plan + box
    gpqa       solve, with the domain + question + tool + plan + box + letter
    lcb        program + question + plan + streams + hand in
    wrapped    question + number                 (math_dapo and mega-science, whose prompts contain the rest already)
    code       question + plan + hand in
    other      solve + question + tool + plan + box + number

Each row is decorated by its own data source and ability; the published code decorates all rows of a file like the
first. A question that already specifies the form of its answer gets no block that would repeat it. If the answer is a
letter, the box is requested for a letter and not for a number. A policy without a tool gets the same advice without the
block `tool` and without mentioning calls.
"""

from __future__ import annotations

import json

from rla_programs.tool.importing.found import PROGRAM_ABILITIES
from rla_programs.tool.questions import Question

SOLVE = "Work through the following mathematics problem, one step after the other."
SOLVE_IN = "Work through the following {domain} problem, one step after the other."
PROGRAM = "Write a Python program that solves the following problem."
TOOL = "The tool computes exactly and fast: calculate with it, and check with it what you have found."
ALONE = "**Understand the problem and settle on a plan for all of it first.**"  # like PLAN, for a policy without a tool
PLAN = "**Understand the problem and settle on a plan for all of it first. Only then call the tool.**"
BOX = "As soon as you are certain, stop calling the tool and give your final answer in \\boxed{}."
BOX_ALONE = "As soon as you are certain, give your final answer in \\boxed{}."
NUMBER = "The box holds nothing but the number, without a unit."
LETTER = "The box holds nothing but the capital letter of the option."
STREAMS = "The program reads from standard input and prints to standard output."
HAND_IN = "You may try out your program with the tool. Hand it in whole, as one block from ```python to ```."
HAND_IN_ALONE = "Hand your program in whole, as one block from ```python to ```."
FENCE = "```python"
LONGEST_DOMAIN = 40


def decoration_of(source: str, ability: str) -> str:
    """The row of the table that a question belongs to."""
    name = source.casefold().replace("_", "-")
    if "aime" in name:
        return "aime"
    if "gpqa" in name:
        return "gpqa"
    if "livecodebench" in name or name.startswith("lcb"):
        return "lcb"
    if "code" in name or ability.casefold() in PROGRAM_ABILITIES:
        return "code"
    return "wrapped" if "math-dapo" in name or "mega-science" in name or "megascience" in name else "other"


def shown_question(question: Question, *, published: bool, tool: bool = True) -> str:
    """The text for the policy: the question alone, or decorated by its source. `tool`: whether the policy has one."""
    if not published:
        return question.text
    form = {"choice": LETTER, "math": NUMBER, "number": NUMBER}.get(question.check, "")
    kind = decoration_of(question.source, "code" if question.check == "code" else question.domain)
    if kind in ("lcb", "code") and question.check != "code":
        kind = "other"  # the source's name is not informative
    if kind in ("lcb", "code"):
        return _with_program(question, kind, tool)
    text = question.text.strip()
    if kind in ("aime", "gpqa") and form == NUMBER:
        form = ""
    if "\\boxed" in text and kind != "wrapped":
        return text
    if kind == "wrapped":
        return text if not form or form in text else _joined(text, form)
    advice = (TOOL, PLAN, BOX, form) if tool else (ALONE, BOX_ALONE, form)
    return _joined(_solve(kind, question.domain), text, " ".join(filter(None, advice)))


def _with_program(question: Question, kind: str, tool: bool) -> str:
    text = question.text.strip()
    if FENCE in text:
        return text
    streams = kind == "lcb" and json.loads(question.problem or "{}").get("function") is None
    plan, hand_in = (PLAN, HAND_IN) if tool else (ALONE, HAND_IN_ALONE)
    advice = " ".join(filter(None, (plan, STREAMS if streams else "", hand_in)))
    return _joined(PROGRAM if kind == "lcb" else "", text, advice)


def _solve(kind: str, domain: str) -> str:
    if kind != "gpqa":
        return SOLVE
    named = " ".join(domain.split())
    plain = named.isascii() and named.replace(" ", "").replace("-", "").isalpha() and len(named) <= LONGEST_DOMAIN
    return SOLVE_IN.format(domain=named.lower() if plain else "science")


def _joined(*blocks: str) -> str:
    return "\n\n".join(filter(None, blocks))
