"""What stands around a question, by its own source and ability."""

from __future__ import annotations

import json

import pytest
from rla_programs.tool.decoration import (
    ALONE,
    BOX,
    BOX_ALONE,
    HAND_IN,
    HAND_IN_ALONE,
    LETTER,
    NUMBER,
    PLAN,
    PROGRAM,
    SOLVE,
    STREAMS,
    TOOL,
    decoration_of,
    shown_question,
)
from rla_programs.tool.questions import Question


def shown(
    source: str,
    check: str = "math",
    *,
    text: str = "Q",
    domain: str = "",
    function: str | None = None,
    tool: bool = True,
) -> str:
    problem = json.dumps({"function": function}) if check == "code" else None
    asked = Question(text=text, check=check, answer="", source=source, domain=domain, problem=problem)  # type: ignore[arg-type]
    return shown_question(asked, published=True, tool=tool)


@pytest.mark.parametrize(
    ("source", "ability", "kind"),
    [
        ("AIME2024", "", "aime"),
        ("gpqa_diamond", "", "gpqa"),
        ("LiveCodeBench_v6", "", "lcb"),
        ("train-code-taco-easy", "", "code"),
        ("whatever", "code", "code"),
        ("math_dapo", "MATH", "wrapped"),
        ("mega-science", "physics", "wrapped"),
        ("train-math-numina", "math", "other"),
        ("", "", "other"),
    ],
)
def test_a_row_of_the_table_for_each_source(source: str, ability: str, kind: str) -> None:
    assert decoration_of(source, ability) == kind


def test_the_blocks_of_each_kind() -> None:
    assert shown("AIME2025") == f"{SOLVE}\n\nQ\n\n{TOOL} {PLAN} {BOX}"
    assert shown("math_dapo") == f"Q\n\n{NUMBER}"
    assert shown("other") == f"{SOLVE}\n\nQ\n\n{TOOL} {PLAN} {BOX} {NUMBER}"
    assert shown("train-code-x", "code") == f"Q\n\n{PLAN} {HAND_IN}"
    assert shown("LiveCodeBench_v6", "code") == f"{PROGRAM}\n\nQ\n\n{PLAN} {STREAMS} {HAND_IN}"
    assert shown("LiveCodeBench_v6", "code", function="f") == f"{PROGRAM}\n\nQ\n\n{PLAN} {HAND_IN}"
    science = shown("gpqa", "choice", domain="Organic Chemistry")
    assert science.startswith("Work through the following organic chemistry problem")
    assert science.endswith(f"{BOX} {LETTER}")


def test_advice_without_a_tool_says_nothing_of_calls() -> None:
    assert shown("AIME2025", tool=False) == f"{SOLVE}\n\nQ\n\n{ALONE} {BOX_ALONE}"
    assert shown("train-code-x", "code", tool=False) == f"Q\n\n{ALONE} {HAND_IN_ALONE}"
    for source, check in (("other", "math"), ("gpqa", "choice"), ("LiveCodeBench_v6", "code"), ("math_dapo", "math")):
        text = shown(source, check, tool=False)
        assert not any(word in text.casefold() for word in ("tool", "call"))
        assert shown(source, check, text=text, tool=False) == text  # and nothing is decorated twice


def test_the_plain_prompt_is_the_question() -> None:
    asked = Question(text="Q", check="math", answer="", source="AIME2024")
    assert shown_question(asked, published=False) == "Q"


def test_the_box_is_asked_for_what_the_answer_is() -> None:
    assert shown("mega-science", "choice") == f"Q\n\n{LETTER}"
    assert shown("other", "choice").endswith(LETTER)
    assert shown("chain_sum", "family").endswith(BOX)  # an answer of a family may be any text


def test_nothing_is_decorated_twice() -> None:
    for source, check in (("AIME2024", "math"), ("gpqa", "choice"), ("LiveCodeBench", "code"), ("math_dapo", "math")):
        once = shown(source, check)
        assert shown(source, check, text=once) == once
    wrapped = "Put it in \\boxed{}."
    assert shown("other", text=wrapped) == wrapped
    assert shown("math_dapo", text=wrapped) == f"{wrapped}\n\n{NUMBER}"  # says the rest, but not this


def test_a_domain_is_named_only_where_it_is_a_plain_word() -> None:
    assert shown("gpqa", "choice", domain="<|im_end|>").startswith("Work through the following science problem")
