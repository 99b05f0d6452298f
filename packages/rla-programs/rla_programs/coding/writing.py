"""Prompts that ask the reward model for one test of a problem, and parsers that turn its reply into a test.

The model sees the problem, never the programs. Both forms result in an input and an output, each a text:

    plain       input lines, a line `->`, output lines; for small models trained on it
    published   reasoning, then the sections Test Input, Test Output (fenced) and Explanation; the last of each counts

For stdio the texts are stdin and stdout. For a function the input holds one argument per line and the output the value,
each in JSON or as a Python literal. Replies are untrusted: parsed in linear time, refused beyond `LONGEST_TEXT`, and
never evaluated. An empty input or output is valid.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rla.envs.authoring import is_text
from rla.envs.chat_prompts import framed, user
from rla.envs.protocols import Message
from rla.text import after_thinking
from rla_programs.coding.data.checkers import Json
from rla_programs.coding.data.problems import CallTest, InvalidProblem, Problem, StdioTest, Test, json_value, question
from rla_programs.coding.fences import FENCE, fenced_blocks, lines_of
from rla_programs.coding.prompts import LONGEST_REPLY

LONGEST_TEXT = 20_000
ARROW = "->"


class Written(NamedTuple):
    """The two texts of a test, without the line end after the last line."""

    input: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTestPrompt:
    """The user turn is the question and a mark, the reply is the test."""

    def messages(self, problem: Problem) -> list[Message]:
        return [user(f"{question(problem)}\ntest:")]

    def parse(self, reply: str) -> Written | None:
        """The texts before and after the only arrow line; None unless there is exactly one."""
        reply = after_thinking(reply)
        lines = lines_of(reply) if len(reply) <= LONGEST_REPLY else []
        arrows = [index for index, line in enumerate(lines) if line.strip() == ARROW]
        if len(arrows) != 1:
            return None
        return _written("\n".join(lines[: arrows[0]]), "\n".join(lines[arrows[0] + 1 :]))

    def render(self, test: Test) -> str:
        texts = texts_of(test)
        return "\n".join(part for part in (texts.input, ARROW, texts.output) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTestPrompt:
    """A rubric, the problem as quoted data, and three sections."""

    preamble: ClassVar[str] = (
        "You are a rigorous test designer. Write exactly one test for the programming problem between the lines of "
        "dashes. The test has to be right (the output is what a correct program answers to the input), in the format "
        "that the problem prescribes, and discriminating: programs with a plausible mistake should fail it. Think step "
        "by step first. Choose an input whose output you can derive safely, check it, and choose another if you are "
        "not sure. Then end your reply in this form:\n\n"
        "**Test Input:**\n```\n(the input)\n```\n\n**Test Output:**\n```\n(the output)\n```\n\n"
        "**Explanation:**\n(why the output is right)"
    )
    function_note: ClassVar[str] = (
        "The problem asks for the function `{name}`: the input is one argument per line and the output the value "
        "that is returned, all as Python literals."
    )

    def messages(self, problem: Problem) -> list[Message]:
        note = "" if problem.function is None else "\n\n" + self.function_note.format(name=problem.function)
        return [user(f"{self.preamble}{note}\n\n{framed(question(problem))}")]

    def parse(self, reply: str) -> Written | None:
        """The last section with each title; None if one is missing."""
        reply = after_thinking(reply)
        lines = lines_of(reply) if len(reply) <= LONGEST_REPLY else []
        titles = _titles(lines)
        given, wanted = (_section(lines, titles, title) for title in ("test input", "test output"))
        return None if given is None or wanted is None else _written(given, wanted)

    def render(self, test: Test) -> str:
        texts = texts_of(test)
        return (
            f"**Test Input:**\n```\n{texts.input}\n```\n\n**Test Output:**\n```\n{texts.output}\n```\n\n"
            "**Explanation:**\nThis is what a correct program answers."
        )


def texts_of(test: Test) -> Written:
    """The texts that `read_test` reads back."""
    if isinstance(test, StdioTest):
        return Written(test.input.removesuffix("\n"), test.output.removesuffix("\n"))
    return Written("\n".join(json.dumps(value) for value in test.arguments), json.dumps(test.expected))


def read_test(problem: Problem, written: Written | None) -> Test | None:
    """The test that the texts describe, of the problem's kind; None if they are invalid."""
    if written is None:
        return None
    if problem.function is None:
        return StdioTest(*(f"{text}\n" if text else "" for text in written))
    try:
        arguments = tuple(_literal(line, argument=True) for line in written.input.split("\n") if line.strip())
        return CallTest(arguments, _literal(written.output))
    except InvalidProblem:
        return None


def _literal(text: str, *, argument: bool = False) -> Json:
    """A JSON value, or a Python literal that is one (`json_value`). Raises `InvalidProblem`."""
    try:
        return json_value(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        return json_value(ast.literal_eval(text.strip()), argument=argument)
    except (ValueError, SyntaxError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise InvalidProblem("not a literal") from error


def _written(given: str, wanted: str) -> Written | None:
    texts = Written(given.strip("\n"), wanted.strip("\n"))
    return texts if all(is_text(text, longest=LONGEST_TEXT) for text in texts) else None


def _section(lines: list[str], titles: dict[int, str], title: str) -> str | None:
    """The text below the last line with this title: the block that it begins with, or all up to the next title."""
    start = next((index for index, found in reversed(titles.items()) if found == title), None)
    if start is None:
        return None
    inline = lines[start].partition(":")[2].strip("*_ \t")
    first = next((index for index in range(start + 1, len(lines)) if lines[index].strip()), len(lines))
    if not inline and first < len(lines) and lines[first].strip().startswith(FENCE):
        found = fenced_blocks(lines[first:])
        return found[0].text if found and found[0].start == 0 else None
    end = next((index for index in titles if index > start), len(lines))
    return "\n".join([inline, *lines[start + 1 : end]]).strip("\n")


TITLES = ("test input", "test output", "explanation")


def _titles(lines: list[str]) -> dict[int, str]:
    """The lines that are titles, in order; fenced lines are content."""
    fenced = {index for block in fenced_blocks(lines) for index in range(block.start, block.end)}
    return {n: title for n, line in enumerate(lines) if n not in fenced and (title := _title(line)) is not None}


def _title(line: str) -> str | None:
    """The title that a line begins with, as in `**Test Input:** 5`, with only markup between title and colon."""
    name = line[:40].partition(":")[0].strip("*_# \t").lower()
    return name if ":" in line[:40] and name in TITLES else None
