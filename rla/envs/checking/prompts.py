"""Checks of how the policy and the reward model are asked, and of how their replies are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rla.envs.checking.findings import ACTIONS, Subject, doing, raised, short, within
from rla.envs.checking.required import encodable, played_of
from rla.envs.observation import offered
from rla.envs.protocols import Demonstrates, Env, Judged, Labels, PolicyPrompt
from rla.envs.views import JudgeView
from rla.store.records import Task

ROLES = ("system", "user", "assistant")
READ = 40  # commands of an observation that are rendered and read back


def wrong_messages(messages: Any, *, of: str) -> Iterator[str]:
    """Complaints about what should be a list of messages."""
    if not isinstance(messages, list) or not messages:
        yield f"{of} gives {short(messages)}; return a list of messages"
        return
    for message in messages:
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            yield f"{of} holds {short(message)}; a message is {{'role': ..., 'content': ...}}"
            return
        if message["role"] not in ROLES:
            yield f"{of} holds the role {short(message['role'])}; choose one of {', '.join(ROLES)}"
        if not isinstance(message["content"], str) or not encodable(message["content"]):
            yield f"{of} holds the content {short(message['content'])}; it must be a text that UTF-8 can hold"
    if messages[-1]["role"] != "user":
        yield f"{of} ends with a message of the {messages[-1]['role']}; the last one must be of the user"


def steps_of(subject: Subject, task: Task) -> Iterator[tuple[list[tuple[str, str]], str, tuple[str, ...], str, str]]:
    """Steps of a good episode, else of a random one: (history, observation, commands, action, next observation)."""
    played = played_of(subject, task)[-1]
    history: list[tuple[str, str]] = []
    for before, action, after in zip(played.seen, played.actions, played.seen[1:], strict=False):
        commands = offered(before.commands, subject.config.env.omit_commands)
        yield list(history), before.text, commands, action, after.text
        history.append((before.text, action))


def policy_is_asked(subject: Subject) -> Iterator[str]:
    """The policy's prompts are messages: opening, turn and window"""
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for history, observation, commands, _, _ in steps_of(subject, task):
            with doing(shown := f"of the observation {short(observation)}"):
                told: Any = (
                    prompt.turn(observation, commands, task.instruction)
                    if history
                    else prompt.opening(observation, commands)
                )
            if not history:
                yield from wrong_messages(told, of="policy_prompt.opening")
            elif not isinstance(told, str) or not encodable(told):
                yield f"policy_prompt.turn gives {short(told)}; return a text"
            with doing(shown):
                window = prompt.window(history, observation, commands, task.instruction)
            yield from wrong_messages(window, of="policy_prompt.window")


def policy_is_read(subject: Subject) -> Iterator[str]:
    """The policy's render and parse are inverse"""
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for _, _, commands, action, _ in steps_of(subject, task):
            drawn = subject.rng("read").sample(commands, min(READ, len(commands)))
            told = drawn if commands else [action] if isinstance(subject.env, Demonstrates) else []
            for one in told:
                with doing(f"of the action {short(one)}"):
                    read = prompt.parse(prompt.render(one, commands), commands)
                if read != one:
                    yield f"parse(render({short(one)})) is {short(read)}; render must write what parse reads"


def hostile_replies_are_read(subject: Subject) -> Iterator[str]:
    """Hostile replies are read as a command that is offered, or as none"""
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks[:1]:
        for _, _, commands, _, _ in steps_of(subject, task):
            for what, reply in ACTIONS.items():
                for offer in (commands, ()):
                    with within(subject.patience):
                        complaint = next(misread(prompt, reply, offer, what=what, env=subject.env), "")
                    yield from filter(None, [complaint])
            return


def misread(prompt: PolicyPrompt, reply: str, commands: tuple[str, ...], *, what: str, env: Env) -> Iterator[str]:
    """Complaints about how a reply is read."""
    try:
        read = prompt.parse(reply, commands)
    except Exception as error:  # to find out what is raised is what this is for
        yield f"policy_prompt.parse of {what} raised {raised(error, env)}; return None"
        return
    if read is not None and not isinstance(read, str):
        yield f"policy_prompt.parse of {what} gives {short(read)}; return a text or None"
    if read is not None and commands and read not in commands:
        yield f"policy_prompt.parse of {what} gives {short(read)}, which is not offered; return None"


def views_of(subject: Subject, task: Task) -> Iterator[JudgeView]:
    """What a judge sees of the steps of an episode, and of its first step with a hostile reply."""
    prompt = subject.env.policy_prompt(subject.config)
    hostile = ACTIONS["tokens that end a turn"]
    for history, observation, commands, action, following in steps_of(subject, task):
        told = prompt.render(action, commands) if not commands or action in commands else action
        for valid, reply in ((True, told), (False, hostile))[: 1 if history else 2]:
            yield JudgeView(
                instruction=task.instruction,
                history=history,
                observation=observation,
                commands=commands,
                reply=reply,
                action=action if valid else "no action",
                valid=valid,
                next_observation=following,
            )


def judge_is_asked(subject: Subject) -> Iterator[str]:
    """The judge's prompts are messages"""
    assert isinstance(subject.env, Judged)
    prompt = subject.env.judge_prompt(subject.config)
    for task in subject.tasks:
        for view in views_of(subject, task):
            with doing(f"of the reply {short(view.reply)} to {short(view.observation)}"):
                messages = prompt.messages(view)
            yield from wrong_messages(messages, of="judge_prompt.messages")


def judge_is_read(subject: Subject) -> Iterator[str]:
    """The judge's render and parse are inverse, and its replies all parse"""
    assert isinstance(subject.env, Judged)
    prompt = subject.env.judge_prompt(subject.config)
    for score in (1, -1):
        for reason in ("", "it makes progress"):
            read = prompt.parse(prompt.render(score, reason))
            if read != score:
                yield f"parse(render({score}, {reason!r})) is {short(read)}; render must write what parse reads"
    replies = prompt.replies()
    if not isinstance(replies, tuple):
        yield f"judge_prompt.replies gives {short(replies)}; return a tuple of texts"
        return
    for reply in replies:
        if (read := prompt.parse(reply)) not in (1, -1):
            yield f"{short(reply)} of judge_prompt.replies is read as {short(read)}, not as 1 or -1"
    if replies and {prompt.parse(reply) for reply in replies} != {1, -1}:
        yield "judge_prompt.replies has no reply for one of the scores 1 and -1"
    if not replies and subject.config.judge.decoding == "admissible":
        yield "judge.decoding is admissible, and judge_prompt.replies is empty; name all replies that may be said"


def hostile_judgements_are_read(subject: Subject) -> Iterator[str]:
    """Hostile judgements are read as 1, -1 or None"""
    assert isinstance(subject.env, Judged)
    prompt = subject.env.judge_prompt(subject.config)
    for what, reply in ACTIONS.items():
        try:
            with within(subject.patience):
                read = prompt.parse(reply)
        except Exception as error:  # to find out what is raised is what this is for
            yield f"judge_prompt.parse of {what} raised {raised(error, subject.env)}; return None"
            return
        if read not in (1, -1, None):
            yield f"judge_prompt.parse of {what} gives {short(read)}; return 1, -1 or None"


def reasons_are_replies(subject: Subject) -> Iterator[str]:
    """What the labels teach is among the judge's replies"""
    assert isinstance(subject.env, Judged)
    env = subject.env
    prompt = env.judge_prompt(subject.config)
    replies = prompt.replies()
    if not isinstance(env, Labels) or not replies:
        return
    for task in subject.tasks:
        actions = played_of(subject, task)[0].actions
        for one in (one for step in env.label(task, subject.config, actions) for one in step):
            if (taught := prompt.render(one.score, one.reason)) not in replies:
                yield f"a label teaches {short(taught)}, which is not among judge_prompt.replies; add its reason there"


POLICY = (policy_is_asked, policy_is_read, hostile_replies_are_read)
JUDGE = (judge_is_asked, judge_is_read, hostile_judgements_are_read, reasons_are_replies)
