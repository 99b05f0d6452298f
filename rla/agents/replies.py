"""The text of a completion, as those who read replies need it."""

from __future__ import annotations

from collections.abc import Sequence

from rla.envs.prompts import PolicyPrompt
from rla.llm.base import Completion
from rla.llm.chat import ChatFormat
from rla.thoughts import after_thinking, open_thought


def reply_text(completion: Completion, chat: ChatFormat) -> str:
    """What was sampled, without the token that ended it. If the template itself opens the thought, its tag comes
    first: whoever reads the text sees where the thought begins, and whether it ends.
    """
    ids = completion.token_ids
    thought = "" if any(completion.allowed) else open_thought(chat.reply_header)  # no listed reply thinks
    return thought + chat.decode(ids[:-1] if ids and ids[-1] in chat.stop_ids else ids)


def action_in(reply: str, prompt: PolicyPrompt, commands: Sequence[str]) -> str | None:
    """The action that `prompt` reads after the thoughts of a reply; None if nothing follows them."""
    said = after_thinking(reply)
    return prompt.parse(said, commands) if said.strip() or not reply.strip() else None
