"""The RL layout of verl, and the evaluation file of LiveCodeBench, which is similar.

    data_source    names the source; one with "code" in it, or the ability code, asks for a program
    prompt         a list of {role, content}, only with the roles system and user
    ability        the field
    reward_model   {ground_truth, style}; ground truths of code rows are tests (`code_tests`)
    problem        instead of `prompt`: the question (evaluation file; `reward_model` and `extra_info` are JSON texts)
    question_id    the question's id for the official runner of LiveCodeBench: a column, or a field of `extra_info`

A ground truth that is a list of one string (Skywork writes it as JSON) is that string; with several strings, each is
right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from rla_programs.coding.data.problems import InvalidProblem, StdioTest, Test
from rla_programs.coding.importing import contests
from rla_programs.coding.importing.columns import Row, mapping, optional, parsed_column, sequence, text, without_images
from rla_programs.coding.importing.livecode import MEMORY_LIMIT_MB, OFFICIAL_IMPORTS, TIME_LIMIT_S, livecode_source
from rla_programs.tool.importing.code_tests import problem_of_tests
from rla_programs.tool.importing.found import (
    PROGRAM_ABILITIES,
    FoundQuestion,
    answer_text,
    named_source,
    question_text,
)

TOLD = ("system", "user")
# The scorer of the published runs (`prime_code` of verl) uses the runner of APPS.
PUBLISHED_LIMITS: dict[str, Any] = {"memory_limit_mb": 1024, "prelude": contests.OFFICIAL_IMPORTS}
EXAMPLES = 3  # examples shown
LONGEST_EXAMPLE = 2000  # characters


def verl(row: Row) -> FoundQuestion:
    """A row of the RL layout."""
    question, source, ability = (
        question_text(_prompt_text(row.get("prompt"))),
        named_source(row),
        optional(row, "ability"),
    )
    truth = mapping(row.get("reward_model"), "reward_model").get("ground_truth")
    if _asks_for_program(source, ability):
        problem = problem_of_tests(without_images(question), truth, source=source or "code", **PUBLISHED_LIMITS)
        return FoundQuestion(text=question, check="code", source=source, domain=ability, problem=problem)
    answer = answer_text(truth)
    return FoundQuestion(text=question, check="math", answer=answer, source=source, domain=ability)


def evaluated_livecode(row: Row) -> FoundQuestion:
    """A row of the evaluation file of LiveCodeBench, whose tests are the examples of the question."""
    question = question_text(text(row, "problem"))
    truth = mapping(row.get("reward_model"), "reward_model").get("ground_truth")
    limits: dict[str, Any] = {
        "time_limit_s": TIME_LIMIT_S,
        "memory_limit_mb": MEMORY_LIMIT_MB,
        "prelude": OFFICIAL_IMPORTS,
    }
    source = livecode_source(row, _further_columns(row))
    problem = problem_of_tests(without_images(question), truth, source=source, **limits)
    text_and_tests = question_text(_with_examples(question, problem.tests))
    return FoundQuestion(text=text_and_tests, check="code", source=named_source(row), problem=problem)


def _further_columns(row: Row) -> Row:
    """`extra_info`; empty if it cannot be parsed, because no question depends on it."""
    with contextlib.suppress(InvalidProblem):
        return mapping(row.get("extra_info"), "extra_info")
    return {}


def _with_examples(question: str, tests: Sequence[Test]) -> str:
    """The question and the first short tests that it does not show. Only for files whose tests are not secret."""
    pairs = [(test.input.strip(), test.output.strip()) for test in tests if isinstance(test, StdioTest)]
    short = [pair for pair in pairs if len(pair[0]) + len(pair[1]) <= LONGEST_EXAMPLE]
    unseen = [pair for pair in short[:EXAMPLES] if not all(part in question for part in pair)]
    return "\n\n".join([question, *(f"Input:\n{given}\nOutput:\n{wanted}" for given, wanted in unseen)])


def _asks_for_program(source: str, ability: str) -> bool:
    """Whether a row asks for a program, by its data source or its ability."""
    return "code" in source.casefold() or ability.casefold() in PROGRAM_ABILITIES


def _prompt_text(prompt: Any) -> str:
    """The texts of the system and the user, in order. Raises `InvalidProblem` for any other role."""
    turns = sequence(parsed_column(prompt, "prompt") if isinstance(prompt, str) else prompt, "prompt")
    said = []
    for turn in turns:
        one = mapping(turn, "a turn of the prompt")
        if one.get("role") not in TOLD:
            raise InvalidProblem("a prompt with turns of others than the system and the user")
        said.append(text(one, "content"))
    return "\n\n".join(said)
