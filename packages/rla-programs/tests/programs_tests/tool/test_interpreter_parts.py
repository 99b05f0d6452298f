"""What surrounds the run of a program: how it is prepared, what the model reads of it, and what is refused unrun."""

from __future__ import annotations

import ast
import asyncio
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.execution import ExitStatus, Job, Limits, Result
from rla_programs.execution.records import ExecutionConfig
from rla_programs.tool.autoprint import prepared
from rla_programs.tool.calls import TOOL, Malformed, ToolCall
from rla_programs.tool.interpreter import LONGEST_CODE, NO_CODE, TOO_LONG, PythonTool, nearest_rank
from rla_programs.tool.results import SILENT, cut_text, harmless, told_result

from rla.envs.observation import CallResult, EnvironmentFailure

SHOWN = '\nif _ is not None: __import__("builtins").print(_)\n'
LIMITS = Limits(wall_s=10.0, cpu_s=2.5, memory_mb=256, output_kb=64)


class Answers:
    """A sandbox that answers every program with one result, and remembers the programs."""

    def __init__(self, result: Result) -> None:
        self.result, self.sources, self.closed = result, list[str](), False

    async def run(self, job: Job) -> list[Result]:
        self.sources.append(job.source)
        return [self.result]

    async def close(self) -> None:
        self.closed = True


def called(call: ToolCall | Malformed, sandbox: Answers, **options: Any) -> CallResult:
    return asyncio.run(PythonTool(ExecutionConfig(), sandbox=sandbox, **options).call(call))


def program(code: object, **more: object) -> ToolCall:
    return ToolCall(name=TOOL, arguments={"code": code} | more)


def told(status: ExitStatus, *, chars: int = 2048, **fields: Any) -> CallResult:
    return told_result(Result(status=status, **fields), LIMITS, chars=chars)


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("1+1", "_ = (1+1)"),
        ("x=3\nx", "x=3\n_ = (x)"),
        ("a=1;a", "a=1;_ = (a)"),
        ("1+1  # two", "_ = (1+1)  # two"),
        ("1+1;", "_ = (1+1);"),
        ("1+1\n   \n", "_ = (1+1)\n   \n"),
        ("(1 +\n 1)", "_ = ((1 +\n 1))"),
        ("*[1], 2", "_ = (*[1], 2)"),
        ("s='ü'; 'é' + s", "s='ü'; _ = ('é' + s)"),
        ("printer = 3\nprinter", "printer = 3\n_ = (printer)"),
        ("print", "_ = (print)"),
        ("if 1:\n  pass\nx", "if 1:\n  pass\n_ = (x)"),
        ("x\r\ny\r\n", "x\n_ = (y)\n"),
    ],
)
def test_a_last_expression_is_printed(code: str, printed: str) -> None:
    assert prepared(code, "syntax") == printed + SHOWN


@pytest.mark.parametrize(
    "code",
    [
        "",
        "x=3",
        "a=1;b=2",
        "x=3  # a comment",
        "for i in range(3):\n    i",
        "if True:\n    1",
        "def f():\n    return 1",
        "print(1)",
        "import math",
        "print(1",
        "1 +",
        "a\0b",
        "'\ud800'",
        "(" * 5000,
        "-" * 100_000 + "1",
        "x" + ".y" * 50_000,
    ],
)
def test_other_programs_stay_as_they_are(code: str) -> None:
    assert prepared(code, "syntax") == code


@given(
    st.lists(
        st.sampled_from(
            ["x", "y = 1", "if x:\n    z", "'''a\nb'''", "f(\n1)", "# c", "x; y", "x;", "é + 'ü'", "\t\n", "\f1"]
        )
    ).map("\n".join)
)
def test_a_valid_program_stays_valid(code: str) -> None:
    try:
        before = ast.parse(code)
    except SyntaxError:
        return
    after = ast.parse(prepared(code, "syntax"))
    assert [statement.lineno for statement in before.body] == [
        statement.lineno for statement in after.body[: len(before.body)]
    ]


@pytest.mark.parametrize(
    ("code", "inside"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("Here it is:\n```python\nx = 1\n```\nand\n```python\ny = 2\n```", "x = 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("```json\n{}\n```\n```py\nx = 1\n```", "x = 1"),
        ("```python\nx = 1", "```python\nx = 1"),
        ('s = """\n```python\n1\n```\n"""', 's = """\n```python\n1\n```\n"""'),
    ],
)
def test_a_fence_around_the_program_is_no_part_of_it(code: str, inside: str) -> None:
    assert prepared(code, "off") == inside


@pytest.mark.parametrize(
    ("code", "rewritten"),
    [
        ("1+1", "print(1+1)"),
        ("x=3", "print(x=3)"),
        ("for i in range(3):\n    i", "for i in range(3):\nprint(    i)"),
        ("1 # c", "print(1 # c)"),
        ("a=1;b=2", "print(a=1;b=2)"),
        ("x\n  \n\n", "x\nprint(  )\n\n"),
        ("printer = 3", "printer = 3"),
        ("print(1)", "print(1)"),
        ("", ""),
        ("say ```python\nx = 1\nx\n``` and more", "x = 1\nprint(x)"),
    ],
)
def test_the_published_rewrite_has_its_defects(code: str, rewritten: str) -> None:
    assert prepared(code, "published") == rewritten


@pytest.mark.parametrize(
    ("result", "text", "status"),
    [
        (Result(status=ExitStatus.OK, stdout="4\n"), "4", "ok"),
        (Result(status=ExitStatus.OK), SILENT, "ok"),
        (Result(status=ExitStatus.OK, stdout="out\n", stderr="err\n"), "out\nerr", "ok"),
        (
            Result(status=ExitStatus.NONZERO, exit_code=1, stdout="o\n", stderr="ValueError: x\n"),
            "o\nValueError: x",
            "error",
        ),
        (Result(status=ExitStatus.NONZERO, exit_code=3), "The program ended with exit code 3.", "error"),
        (Result(status=ExitStatus.SIGNAL, detail="SIGSEGV"), "The program was ended by SIGSEGV.", "error"),
        (
            Result(status=ExitStatus.TIMEOUT, stdout="half\n"),
            "half\nThe program was stopped after 10 seconds.",
            "timeout",
        ),
        (Result(status=ExitStatus.CPU), "The program was stopped after it had computed for 2.5 seconds.", "timeout"),
        (
            Result(status=ExitStatus.MEMORY),
            "The program was stopped because it needs more than 256 MB of memory.",
            "memory",
        ),
        (Result(status=ExitStatus.OUTPUT), "The program was stopped because it printed more than 64 KB.", "output"),
    ],
)
def test_a_result_says_how_the_program_ended(result: Result, text: str, status: str) -> None:
    assert told_result(result, LIMITS, chars=2048) == CallResult(text=text, status=status)


def test_a_traceback_names_no_folder_of_the_machine() -> None:
    stderr = 'Traceback (most recent call last):\n  File "/tmp/rla-program-x1/program.py", line 1, in f\n'
    assert 'File "program.py", line 1' in told(ExitStatus.NONZERO, stderr=stderr).text


def test_the_end_of_a_traceback_survives_a_long_output() -> None:
    stderr = "Traceback (most recent call last):\n  ...\nZeroDivisionError: division by zero\n"
    text = told(ExitStatus.NONZERO, stdout="x" * 100_000, stderr=stderr, chars=256).text
    assert len(text) <= 256
    assert text.endswith(stderr.strip())


@pytest.mark.parametrize(
    ("text", "chars", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("a" * 60 + "b" * 60, 50, "a" * 7 + "\n[105 characters are missing here]\n" + "b" * 8),
        ("abcdef", 4, "cdef"),
        ("abcdef", 1, "f"),
    ],
)
def test_a_cut_says_how_much_is_missing(text: str, chars: int, short: str) -> None:
    assert cut_text(text, chars) == short


@given(st.text(max_size=300), st.integers(1, 120))
def test_a_cut_is_never_too_long(text: str, chars: int) -> None:
    short = cut_text(text, chars)
    assert len(short) <= chars
    if found := re.search(r"\n\[(\d+) characters are missing here\]\n", short):
        assert len(short) - len(found[0]) + int(found[1]) == len(text)


def test_the_published_cut_keeps_both_halves_and_adds_its_mark() -> None:
    text = "a" * 200 + "b" * 200
    assert cut_text(text, 256, "published") == "a" * 128 + "...(truncated)..." + "b" * 128
    assert cut_text("a" * 256, 256, "published") == "a" * 256
    assert cut_text("abc", 1, "published") == "...(truncated)...c"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a\r\nb\tc", "a\nb\tc"),
        ("a\0b\x1b[31m\x7f\x85", "a\ufffdb\ufffd[31m\ufffd\ufffd"),
        ("\ud800 \udfff", "\ufffd \ufffd"),
        ("</tool_response>", "< /tool_response>"),
        ("<tool_response>\n<TOOL_CALL><think></think>", "< tool_response>\n< TOOL_CALL>< think>< /think>"),
        ("<|im_end|>", "<|im_end|>"),  # the chat encodes contents without control tokens
        ("if a <tool_callers: a < b", "if a <tool_callers: a < b"),
    ],
)
def test_output_is_plain_text(text: str, plain: str) -> None:
    assert harmless(text) == plain


def test_no_marker_of_a_chat_template_comes_out_of_a_cut() -> None:
    text = "</tool_response>" * 1000
    for chars in range(40, 120):
        assert not re.search(r"<(?=/?tool)", told(ExitStatus.OK, stdout=text, chars=chars).text)


@pytest.mark.parametrize("unit", ["<", "< ", "</", "<tool_call", 'File "', "\r", "\ud800"])
def test_megabytes_of_output_are_told_at_once(unit: str) -> None:
    started = time.process_time()
    told(ExitStatus.OK, stdout=unit * (1_000_000 // len(unit)), stderr=unit * (4096 // len(unit)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("call", "text", "status"),
    [
        (
            Malformed(reason="The call is </tool_call> not closed."),
            "The call is < /tool_call> not closed.",
            "malformed",
        ),
        (
            ToolCall(name="browser", arguments={"code": "1"}),
            "no tool 'browser'; the only tool is 'code_interpreter'",
            "unknown",
        ),
        (ToolCall(name="\ud800" * 9999, arguments={}), "There is no tool", "unknown"),
        (ToolCall(name=TOOL, arguments={}), NO_CODE, "unknown"),
        (program(3), NO_CODE, "unknown"),
        (program(["print(1)"]), NO_CODE, "unknown"),
        (program("x" * (LONGEST_CODE + 1)), TOO_LONG, "error"),
    ],
)
def test_a_call_that_cannot_be_run_is_told_so(call: ToolCall | Malformed, text: str, status: str) -> None:
    sandbox = Answers(Result(status=ExitStatus.OK))
    result = called(call, sandbox)
    assert text in result.text
    assert result.status == status
    assert sandbox.sources == []


def test_other_arguments_lift_no_limit_and_do_no_harm() -> None:
    sandbox = Answers(Result(status=ExitStatus.OK, stdout="1\n"))
    assert called(program("print(1)", timeout=9999, language="bash"), sandbox) == CallResult(text="1", status="ok")
    assert sandbox.sources == ["print(1)"]


def test_a_sandbox_that_fails_is_no_result() -> None:
    with pytest.raises(EnvironmentFailure, match="no answer"):
        called(program("print(1)"), Answers(Result(status=ExitStatus.ERROR, detail="no answer")))


def test_modes_go_by_name() -> None:
    sandbox = Answers(Result(status=ExitStatus.OK, stdout="y" * 300))
    result = called(program("x=3"), sandbox, autoprint="published", cutting="published", result_chars=256)
    assert sandbox.sources == ["print(x=3)"]
    assert len(result.text) == 256 + len("...(truncated)...")


def test_figures_count_calls_by_status() -> None:
    async def calls() -> dict[str, float]:
        tool = PythonTool(ExecutionConfig(), sandbox=Answers(Result(status=ExitStatus.OK, wall_s=0.5)))
        for call in (program("1"), program("2"), Malformed(reason="No.")):
            await tool.call(call)
        return tool.figures()

    found = asyncio.run(calls())
    assert (found["calls"], found["calls_ok"], found["calls_malformed"]) == (3, 2, 1)
    assert (found["runs"], found["run_seconds_mean"], found["run_seconds_p99"]) == (2, 0.5, 0.5)
    assert 0 <= found["call_seconds_mean"] <= found["call_seconds_p99"]


def test_without_calls_there_are_no_figures() -> None:
    assert PythonTool(ExecutionConfig(), sandbox=Answers(Result(status=ExitStatus.OK, wall_s=0.5))).figures() == {}


def test_a_percentile_is_one_of_the_values() -> None:
    assert nearest_rank([float(number) for number in range(1, 101)], 0.99) == 99.0
    assert nearest_rank([7.0], 0.99) == 7.0
