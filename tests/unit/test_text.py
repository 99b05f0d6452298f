"""Nothing before the last `</think>` acts, answers or votes, whoever reads the reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rla.adaptation.drafting import read_proposal, sentences
from rla.agents import NO_ACTION, CommandTries, PolicyAgent, action_in
from rla.config.sections import PolicyConfig
from rla.envs.chat_prompts import ChatJudge, ChatPrompt, PlainJudge
from rla.envs.observation import Observation
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat, reply_text
from rla.rollouts.scores import unscored_judgement, voted
from rla.text import after_thinking
from tests.unit.llm.test_chat import QWEN_LIKE, byte_tokenizer

THINKING = QWEN_LIKE.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
COMMANDS = ("open left", "open right")
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "text": (lambda reply: ChatPrompt().parse(reply, COMMANDS), "open right"),
    "index": (lambda reply: ChatPrompt(reply="index").parse(reply, COMMANDS), "\\boxed{1}"),
    "tagged": (lambda reply: ChatPrompt(reply="tagged").parse(reply, ()), "<action>wait</action>"),
    "judge": (ChatJudge(rubric="").parse, "\\boxed{1}"),
    "plain judge": (PlainJudge().parse, "score +1"),
}


def assert_thoughts_are_not_read(read: Callable[[str], Any], said: str, *, nothing: Any = None) -> None:
    """`read` finds something in `said`, and `nothing` where that is a thought."""
    assert read(said) != nothing
    assert read(f"<think>{said}</think>\n") == nothing
    assert read(f"<think>{said}") == nothing
    assert read(f"{said}\n<think>") == nothing
    assert read(f"<think>\n{said}\n</think>{said}") == read(said)


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
        ("<thoughts>a", ""),
        ("<|START_THINKING|>a<|END_THINKING|>b", "b"),
        ("<|START_THINKING|>a", ""),
        ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
        ("<|channel|>analysisa<|channel|>finalb", "b"),
        ("<|channel|>analysisa", ""),
        ("<reasoning>a", ""),
        ("<think >a</think\n>b", "b"),
        ("", ""),
    ],
)
def test_an_answer_is_what_follows_the_last_thought(text: str, answer: str) -> None:
    assert after_thinking(text) == answer


@pytest.mark.parametrize("name", READERS)
def test_a_thought_is_not_read(name: str) -> None:
    assert_thoughts_are_not_read(*READERS[name])


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
    agent.prompt(Observation("Two doors."), COMMANDS)
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


@pytest.mark.parametrize(
    ("opens", "closes"),
    [("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|channel|>", "<|channel|>")],
)
def test_tags_of_thoughts_that_are_control_tokens_stay_in_a_reply(opens: str, closes: str) -> None:
    tokenizer = byte_tokenizer().__class__(
        tokenizer_object=byte_tokenizer().backend_tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(dict.fromkeys((opens, closes, "<|message|>"))),
        chat_template=QWEN_LIKE,
    )
    chat = ChatFormat(tokenizer)
    opened, closed = tokenizer.convert_tokens_to_ids([opens, closes])
    named = ["analysis", "final"] if opens == closes else ["", ""]
    ids = [opened, *chat.encode(f"{named[0]}\\boxed{{1}}"), closed, *chat.encode(f"{named[1]}no")]
    assert chat.decode(ids) == f"{opens}{named[0]}\\boxed{{1}}{closes}{named[1]}no"
    assert after_thinking(chat.decode(ids)) == "no" and not after_thinking(chat.decode(ids[:-4]))


def test_reasons_of_a_judge_are_not_those_of_its_thoughts() -> None:
    assert sentences("<think>Is it wrong?</think>It repeats a call. \\boxed{-1}") == ["It repeats a call"]
