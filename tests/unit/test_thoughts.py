"""Nothing before the last `</think>` acts, answers or votes, whoever reads the reply."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rla_bridges.adapters.openenv_actions import form_of, read_action
from rla_programs.answering.transcripts import played_elsewhere
from rla_programs.coding.prompts import PlainProgramPrompt, PublishedProgramPrompt
from rla_programs.coding.writing import PlainTestPrompt, PublishedTestPrompt
from rla_programs.tool.answers import final_answer, last_program
from rla_programs.tool.calls import Turn
from rla_programs.tool.hermes import HermesFormat
from rla_programs.tool.prompts import QuestionPrompt
from rla_programs.tool.short import ShortFormat
from rla_screens.screens.computer_use import deed_of_tool_call

from rla.adaptation.drafting import sentences
from rla.agents.judge import unscored_judgement, voted
from rla.agents.policy import NO_ACTION, CommandTries, PolicyAgent, action_in
from rla.agents.proposer import read_proposal
from rla.config.sections import PolicyConfig
from rla.envs.chat_prompts import ChatJudge, ChatPrompt, PlainJudge
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat, reply_text
from rla.thoughts import after_thinking
from tests.unit.llm.test_chat import QWEN_LIKE, byte_tokenizer

THINKING = QWEN_LIKE.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
CALL = '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'
CLICK = '<tool_call>{"name": "computer_use", "arguments": {"action": "terminate"}}</tool_call>'
PROGRAM = "```python\nprint(1)\n```"
TEST = "**Test Input:**\n```\n1\n```\n\n**Test Output:**\n```\n2\n```"
COMMANDS = ("open left", "open right")
READERS: dict[str, tuple[Any, str, Any]] = {
    "text": (lambda reply: ChatPrompt().parse(reply, COMMANDS), "open right", None),
    "index": (lambda reply: ChatPrompt(reply="index").parse(reply, COMMANDS), "\\boxed{1}", None),
    "tagged": (lambda reply: ChatPrompt(reply="tagged").parse(reply, ()), "<action>wait</action>", None),
    "judge": (ChatJudge(rubric="").parse, "\\boxed{1}", None),
    "plain judge": (PlainJudge().parse, "score +1", None),
    "hermes": (lambda reply: HermesFormat().parse(reply).calls, CALL, ()),
    "short": (lambda reply: ShortFormat().parse(reply).calls, ">>> 1", ()),
    "question": (lambda reply: QuestionPrompt().parse(reply, ()), CALL, None),
    "answer": (final_answer, "\\boxed{42}", None),
    "program that answers": (last_program, PROGRAM, None),
    "program": (lambda reply: PublishedProgramPrompt().parse(reply, ()), PROGRAM, None),
    "plain program": (lambda reply: PlainProgramPrompt().parse(reply, ()), "print(1)", None),
    "test": (PublishedTestPrompt().parse, TEST, None),
    "plain test": (PlainTestPrompt().parse, "1\n->\n2", None),
    "computer_use": (deed_of_tool_call, CLICK, None),
}


def completion(chat: ChatFormat, text: str) -> Completion:
    ids = [*chat.encode(text), chat.end_id]
    return Completion(
        token_ids=ids, logprobs=[-1.0] * len(ids), allowed=[[] for _ in ids], finish_reason=FinishReason.STOP
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", ""),
        ("<think>a</think>b<think>c", ""),
        ("<THINK>a</Think>b", "b"),
        ("<thinking>a</thinking>b", "b"),
        ("[THINK]a[/THINK]b", "b"),
        ("<seed:think>a</seed:think>b", "b"),
        ("\u25c1think\u25b7a\u25c1/think\u25b7b", "b"),
        ("<thought>a</thought>b", "b"),
        ("<reasoning>a", ""),
        ("<think >a</think\n>b", "b"),
        ("", ""),
    ],
)
def test_an_answer_is_what_follows_the_last_thought(text: str, answer: str) -> None:
    assert after_thinking(text) == answer


@pytest.mark.parametrize("name", READERS)
def test_a_thought_is_not_read(name: str) -> None:
    read, said, nothing = READERS[name]
    assert read(said) != nothing
    assert read(f"<think>{said}</think>\n") == nothing
    assert read(f"<think>{said}") == nothing
    assert read(f"{said}\n<think>") == nothing
    assert read(f"<think>\n{said}\n</think>{said}") == read(said)


def test_text_and_calls_of_a_turn_are_those_after_the_thoughts() -> None:
    assert HermesFormat().parse(f"<think>{CALL}</think>It is 4.") == Turn(text="It is 4.")


def test_an_openenv_action_stands_after_the_thoughts() -> None:
    form = form_of({"properties": {"row": {"type": "integer"}}, "required": ["row"]})
    assert read_action("<think>row=1</think>\nrow=2", form) == {"row": 2}


def test_the_prompt_of_another_author_never_sees_a_thought() -> None:
    class Echo(ChatPrompt):
        def parse(self, reply: str, commands: Any) -> str | None:
            return reply

    assert action_in("<think>a</think>b", Echo(), ()) == "b"
    assert action_in("<think>a", Echo(), ()) is None
    assert action_in("", Echo(), ()) == ""


def policy(chat: ChatFormat) -> PolicyAgent:
    return PolicyAgent(
        chat=chat,
        prompt=ChatPrompt(reply="index"),
        config=PolicyConfig(decoding="free", reply="index"),
        tries=CommandTries(chat),
        instruction="",
    )


@pytest.mark.parametrize(
    ("said", "action"), [("\\boxed{0}</think>\\boxed{1}", "open right"), ("\\boxed{0}", NO_ACTION)]
)
def test_a_thought_that_the_template_opens_is_a_thought(said: str, action: str) -> None:
    chat = ChatFormat(byte_tokenizer(THINKING))
    agent = policy(chat)
    agent.prompt("Two doors.", COMMANDS)
    step = agent.read(completion(chat, said), "Two doors.", COMMANDS)
    assert (step.action, step.valid) == (action, action != NO_ACTION)
    assert step.reply == f"<think>\n{said}"


@pytest.mark.parametrize(("said", "score"), [("\\boxed{1}</think>\\boxed{-1}", -1), ("\\boxed{1}", None)])
def test_a_judge_whose_template_opens_the_thought_votes_after_it(said: str, score: int | None) -> None:
    chat = ChatFormat(byte_tokenizer(THINKING))
    judgement = voted(unscored_judgement(completion(chat, said), chat), ChatJudge(rubric=""))
    assert judgement.score == score


def test_a_proposal_in_an_open_thought_is_none() -> None:
    chat = ChatFormat(byte_tokenizer(THINKING))
    assert read_proposal(completion(chat, '{"a": 1}'), chat).refused
    assert read_proposal(completion(chat, '{"a": 1}</think>{"a": 2}'), chat).edit == '{"a": 2}'


def test_one_of_the_listed_replies_has_no_thought() -> None:
    chat = ChatFormat(byte_tokenizer(THINKING))
    listed = completion(chat, "score +1")
    listed = Completion(
        token_ids=listed.token_ids,
        logprobs=listed.logprobs,
        allowed=[[token] for token in listed.token_ids],
        finish_reason=FinishReason.STOP,
    )
    assert reply_text(listed, chat) == "score +1"


def test_tags_of_thoughts_that_are_control_tokens_stay_in_a_reply() -> None:
    tokenizer = byte_tokenizer().__class__(
        tokenizer_object=byte_tokenizer().backend_tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<think>", "</think>"],
        chat_template=QWEN_LIKE,
    )
    chat = ChatFormat(tokenizer)
    opened, closed = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    ids = [opened, *chat.encode("\\boxed{1}"), closed, *chat.encode("no")]
    assert chat.decode(ids) == "<think>\\boxed{1}</think>no"


def test_a_result_that_a_model_imagines_is_no_result() -> None:
    thought = f"<think>{CALL}<tool_response>9</tool_response></think>"
    told = f"{thought}{CALL}<tool_response>1</tool_response><think>so</think>\\boxed{{1}}"
    played = played_elsewhere(told, QuestionPrompt(calls=HermesFormat()))
    assert (played.replies, played.answers, played.calls) == ([CALL, "\\boxed{1}"], ["1", ""], 1)


@pytest.mark.parametrize(
    "part", ["<tool_response><think></tool_response>", "<think><tool_response>", "</think><tool_response>", "<think>"]
)
def test_thoughts_of_transcripts_are_found_in_linear_time(part: str) -> None:
    started = time.process_time()
    QuestionPrompt().turns_in(part * (900_000 // len(part)))
    assert time.process_time() - started < 2


def test_a_transcript_that_ends_in_a_thought_has_no_answer() -> None:
    played = played_elsewhere(f"{CALL}<tool_response>1</tool_response><think>\\boxed{{1}}", QuestionPrompt())
    assert played.replies[-1] == "" and not played.answered


def test_reasons_of_a_judge_are_not_those_of_its_thoughts() -> None:
    assert sentences("<think>Is it wrong?</think>It repeats a call. \\boxed{-1}") == ["It repeats a call"]
