"""Conversations that were held elsewhere, and how they are judged: calls count, and none is run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rla_programs.answering.answer_files import matched_answers, read_answers
from rla_programs.answering.answers import JudgedAnswer, calls_of_transcripts, judge_answer
from rla_programs.answering.transcripts import Given, given_messages
from rla_programs.answering.voting import class_of_answers
from rla_programs.tool.answers import Verifier
from rla_programs.tool.calls import Malformed, ToolCall
from rla_programs.tool.environment import Tool
from rla_programs.tool.episode import ToolEpisode
from rla_programs.tool.formats import make_format
from rla_programs.tool.questions import Question, question_of, task_of_question
from rla_programs.tool.tool_use import given_tool_figures

from programs_tests.answering.test_answer_files import lines
from programs_tests.tool.test_transcripts import CALL, RESULT
from rla.envs.observation import CallResult
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import configured

TASK = task_of_question(Question(text="What is 6 times 7?", check="number", answer="42", source="s"), split="test")
OPENAI = {
    "id": "1",
    "type": "function",
    "function": {"name": "code_interpreter", "arguments": '{"code": "print(6 * 7)"}'},
}
ASKED = {"role": "user", "content": "What is 6 times 7?"}


class Forbidden:
    """A tool that nobody may call."""

    async def call(self, call: ToolCall | Malformed) -> CallResult:
        raise AssertionError("a call was run again")


def judged(given: Given, *, answer: str = "checked", name: str = "hermes", on_malformed: str = "tell") -> JudgedAnswer:
    own = (f"env.own.answer={answer}", f"env.own.format={name}", f"env.own.on_malformed={on_malformed}")
    config = configured(*own, env="tool")

    def make(task: Task) -> ToolEpisode:
        return ToolEpisode(
            question_of(task),
            shown="",
            caller=Forbidden(),
            checker=Verifier(published=answer == "published"),
            calls=make_format(name),
            most_calls=1,
            malformed_ends=on_malformed == "end",
            whole=answer == "published",
        )

    votes = class_of_answers(config, [TASK])
    return asyncio.run(judge_answer(TASK, given, make, Tool().policy_prompt(config), 1.0, votes))


def said(*messages: dict[str, Any]) -> Given:
    return given_messages([ASKED, *messages])


def figures(one: JudgedAnswer) -> tuple[bool, int, int, bool, str | None]:
    """Won, calls, rounds, answered, vote."""
    assert not one.error and not one.episode.broken
    return one.episode.won, one.calls, one.episode.steps, one.answered, one.vote


def assistant(content: Any, *calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}


def tool(content: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content}


@pytest.mark.parametrize(
    "given",
    [
        f"I compute. {CALL}{RESULT}So \\boxed{{42}}",
        f"I compute. {CALL}user\n{RESULT}\nassistant\nSo \\boxed{{42}}",
        said(assistant("I compute.", OPENAI), tool("42"), assistant("So \\boxed{42}")),
        said(assistant(None, OPENAI), tool([{"type": "text", "text": "42"}]), assistant("So \\boxed{42}")),
        said(assistant(f"I compute. {CALL}"), tool(RESULT), assistant("So \\boxed{42}")),
        said(assistant(f"I compute. {CALL}"), {"role": "user", "content": RESULT}, assistant("So \\boxed{42}")),
        said(assistant(f"I compute. {CALL}{RESULT}So \\boxed{{42}}")),
        said(assistant("", OPENAI), tool("42"), assistant("So \\boxed{42}"), {"role": "user", "content": "Thanks!"}),
    ],
)
def test_the_answer_stands_after_the_last_result(given: Given) -> None:
    assert figures(judged(given)) == (True, 1, 2, True, "42")


def test_a_box_before_the_last_result_is_no_answer() -> None:
    one = judged(f"\\boxed{{42}} {CALL}{RESULT}\\boxed{{41}}")
    assert figures(one) == (False, 1, 2, True, "41")


@pytest.mark.parametrize(
    ("given", "calls", "rounds"),
    [
        (f"\\boxed{{42}} {CALL}", 1, 1),
        (f"{CALL}{RESULT}\\boxed{{42}} {CALL}", 2, 2),
        ("\\boxed{42} <tool_call>\n{", 1, 1),
        (f"\\boxed{{42}} {CALL}{RESULT}", 1, 2),  # nothing after the result
        (said(assistant("\\boxed{42}", OPENAI)), 1, 1),
        (said(assistant("\\boxed{42}", OPENAI), tool("42")), 1, 1),
        (said(assistant("\\boxed{42}", {"function": {"name": "f", "arguments": "{"}})), 1, 1),
    ],
)
def test_a_transcript_that_ends_with_a_call_or_a_result_is_lost(given: Given, calls: int, rounds: int) -> None:
    assert figures(judged(given)) == (False, calls, rounds, False, None)


def test_the_short_format_has_its_results_in_turns_of_the_user() -> None:
    given = said(assistant(">>> print(6 * 7)"), {"role": "user", "content": "42"}, assistant("= 42"))
    assert figures(judged(given, name="short")) == (True, 1, 2, True, "42")
    assert figures(judged(f">>> print(6 * 7)\n{RESULT}\n= 42", name="short")) == (True, 1, 2, True, "42")
    assert figures(judged(" >>> print(6 * 7)\n= 42", name="short")) == (False, 1, 1, False, None)
    assert figures(judged(f"{CALL}{RESULT}= 42", name="short")) == (True, 1, 2, True, "42")


def test_published_answers_are_read_from_the_whole_transcript() -> None:
    for given in (f"\\boxed{{42}} {CALL[-20:]}{RESULT}Done.", said(assistant("\\boxed{42}"), assistant("Done."))):
        assert judged(given, answer="published").episode.won and not judged(given).episode.won
    assert judged("\\boxed{42}<tool_call>\n{", answer="published").episode.won  # ends with a call
    assert not judged(
        f"{CALL}\n<tool_response>\\boxed{{42}}</tool_response>" * 2 + CALL, answer="published"
    ).episode.won


def test_calls_count_where_one_transcript_of_the_file_tells_them() -> None:
    """Two calls, one, none; the plain answer made none, because the file is one of transcripts."""
    told = [judged(f"{CALL}{RESULT}{CALL}{RESULT}x"), judged(CALL), judged("\\boxed{42}")]
    found = calls_of_transcripts(told)
    assert (found["tool_calls"], found["tool_no_call"], found["tool_calls_ran"]) == (1.0, 1 / 3, None)
    assert found["tool_by_kind"]["s"]["tool_calls"] == 1.0
    assert calls_of_transcripts([judged("\\boxed{42}")]) == {}
    assert calls_of_transcripts([judged(said(assistant("\\boxed{42}")))])["tool_no_call"] == 1.0
    assert given_tool_figures([]) == {}


def test_rows_of_messages_belong_to_the_question_that_the_user_asks(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {**ASKED, "content": "Please: what?\nWhat is 6\ntimes 7?"}]
    other = task_of_question(Question(text="1 + 1?", check="number", answer="2", source="s"), split="test")
    file = lines(
        tmp_path,
        {"messages": [*talk, assistant("42")], "extra": 1},
        {"messages": [assistant("2")], "question": "1 + 1?"},
        {"messages": [{"role": "user", "content": "nobody asks"}, assistant("3")]},
        {"messages": talk, "response": "43", "task_id": TASK.task_id},  # a text goes before
    )
    found = matched_answers(read_answers(file), [TASK, other])
    assert found.unmatched == 1
    texts = [[one if isinstance(one, str) else one.turns[-1].text for _, one in group] for group in found.groups]
    assert texts == [["42", "43"], ["2"]]


def test_messages_of_parquet_files_are_read_alike(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "a.parquet"
    call = {"type": "function", "function": {"name": "code_interpreter", "arguments": {"code": "print(6 * 7)"}}}
    pq.write_table(
        pa.Table.from_pylist([{"messages": [ASKED, assistant(None, call), tool("42"), assistant("\\boxed{42}")]}]), file
    )
    ((_, given),) = matched_answers(read_answers(file), [TASK]).groups[0]
    assert figures(judged(given)) == (True, 1, 2, True, "42")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"messages": "text"}, "messages is not a list of messages"),
        ({"messages": ["text"]}, "messages is not a list of messages"),
        ({"messages": [ASKED]}, "no message is of the assistant"),
        ({"messages": [ASKED, {"role": "gpt", "content": "42"}]}, "a message has the role 'gpt'"),
        ({"messages": [ASKED, assistant(42)]}, "a content is neither a text nor"),
        ({"messages": [ASKED, assistant("", {"function": {}})]}, "a call in tool_calls has no name"),
        ({"messages": [ASKED, {**assistant(""), "tool_calls": "{"}]}, "tool_calls is a string that is not JSON"),
        ({"messages": [ASKED, {**assistant(""), "tool_calls": 7}]}, "tool_calls is not a list"),
        ({"messages": [assistant("42")]}, "messages without a user's question; add one"),
        ({"messages": [ASKED, assistant("42")], "task_id": 7}, "task_id must be a text"),
    ],
)
def test_bad_rows_are_refused_by_file_row_and_remedy(tmp_path: Path, row: Any, fault: str) -> None:
    file = lines(tmp_path, {"task_id": "t", "response": "1"}, row)
    with pytest.raises(UserError) as refused:
        read_answers(file)
    assert str(refused.value).startswith(f"{file}, row 2: {fault}")
