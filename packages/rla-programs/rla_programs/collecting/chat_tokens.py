"""A conversation as token ids with a weight each: 1 for the assistant's tokens, 0 for all others.

The weights are those of TRL's `assistant_only_loss`. The assistant's part is marked with `{% generation %}` in a
template: the tokenizer's own, or TRL's training template in its place, which prints every turn the same way whatever
follows it. Without such a template it is, for each turn,

    render(messages up to the turn) minus render(messages before it, with the header of a reply)

so the end of a turn trains, with everything that the template prints behind it. Ids are those of the rendered text as a
whole, with two exceptions. A control token in somebody's text is plain text. And no token spans the beginning of a
reply, because no model can sample such a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from rla.errors import UserError
from rla.llm.chat import ChatFormat, rendered_in_time
from rla.text import whole_text
from rla_programs.collecting.conversations import Conversation, template_messages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rla.training.sequences import Example

Span = tuple[int, int]
THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
NAMES = frozenset({"name", "role", "type"})  # keys whose values no template prints as somebody's text
PRIVATE = range(0xE000, 0xF8FF)  # code points without a meaning of their own


class NotRendered(ValueError):
    """A conversation that a chat template cannot print; the message says why."""


class ChatTokens:
    """Tokenises conversations for one tokenizer. `marked`: whether spans come from marks of a template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._chat = ChatFormat(tokenizer)
        self.thoughtless = 0  # number of conversations with thoughts that the template does not print
        own = tokenizer.chat_template
        own = own["default"] if isinstance(own, dict) else str(own)
        marked = training_template(tokenizer, own)
        self.marked = marked is not None
        self._template = own if marked is None else marked
        self._ids = {text: index for index, text in self._chat.control.items() if text}
        strings = "|".join(map(re.escape, sorted(self._ids, key=len, reverse=True)))
        self._control = re.compile(f"({strings})")
        self._starts = re.compile(f"(?=(?:{strings}))(.)", re.DOTALL)

    def example(self, conversation: Conversation, *, most: int = 0) -> Example:
        """The ids and weights of a conversation, cut on the right to `most` tokens (0: not cut). Raises NotRendered."""
        from rla.training.sequences import Example

        ids: list[int] = []
        weights: list[float] = []
        for run, said in self._runs(conversation):
            ids += run
            weights += [float(said)] * len(run)
        most = most or len(ids)
        return Example(token_ids=ids[:most], weights=weights[:most])

    def _runs(self, conversation: Conversation) -> Iterator[tuple[list[int], bool]]:
        """Runs of ids, each with whether it is the assistant's."""
        breaker = unused(conversation)
        text, spans = self._rendered(self._broken(conversation, breaker))
        if whole_text(text) != text:
            raise NotRendered("half of a surrogate pair, which is not a character")
        thoughts = [found[1].strip() for one in conversation.replies() for found in THOUGHT.finditer(one.content)]
        shown = text.replace(breaker, "")
        self.thoughtless += any(self._chat.without_headers(thought) not in shown for thought in thoughts)
        for piece, said in _pieces_by_span(text, spans):
            for place, part in enumerate(self._control.split(piece)):
                if place % 2:
                    yield [self._ids[part]], said
                elif part:
                    yield self._chat.encode_once(part.replace(breaker, "")), said

    def _broken(self, conversation: Conversation, breaker: str) -> tuple[list[dict[str, Any]], Any]:
        """Messages and tools without control tokens: `breaker` is inserted into the middle of each."""

        def broken(value: Any, name: str = "name") -> Any:
            if isinstance(value, str):
                text = value if name in NAMES else self._chat.without_headers(value)
                return self._starts.sub(lambda found: found[1] + breaker, text)
            if isinstance(value, dict):
                return {broken(key): broken(inner, key) for key, inner in value.items()}
            return [broken(inner, name) for inner in value] if isinstance(value, list) else value

        messages = template_messages(conversation.messages)
        if "tool_calls" not in self._template and any("tool_calls" in one for one in messages):
            raise NotRendered("the chat template prints no calls of tools; collect with env.own.format: short")
        return broken(messages), broken(json.loads(conversation.tools)) if conversation.tools else None

    def _rendered(self, chat: tuple[list[dict[str, Any]], Any]) -> tuple[str, list[Span]]:
        """The text of a conversation, and the assistant's spans in it."""
        by = self._by_marks if self.marked else self._by_difference
        try:
            return rendered_in_time(str(self._tokenizer.name_or_path), lambda: by(*chat))
        except (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
            raise NotRendered(f"the chat template refuses it: {error}") from None

    def _by_marks(self, messages: list[dict[str, Any]], tools: Any) -> tuple[str, list[Span]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        texts, spans = render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=self._template,
            return_assistant_tokens_mask=True,
            **self._tokenizer.special_tokens_map,
        )
        return texts[0], [tuple(span) for span in spans[0]]

    def _by_difference(self, messages: list[dict[str, Any]], tools: Any) -> tuple[str, list[Span]]:
        def render(count: int, *, header: bool = False) -> str:
            return str(
                self._tokenizer.apply_chat_template(
                    messages[:count], tools=tools, tokenize=False, add_generation_prompt=header
                )
            )

        whole = render(len(messages))
        spans = []
        for place in (place for place, one in enumerate(messages) if one["role"] == "assistant" and place):
            before, after = render(place, header=True), render(place + 1)
            if not (whole.startswith(after) and after.startswith(before)):
                raise NotRendered("the chat template prints a turn otherwise when another one follows it")
            spans.append((len(before), len(after)))
        return whole, spans


def training_template(tokenizer: PreTrainedTokenizerBase, own: str) -> str | None:
    """The template with marks: `own`, or TRL's replacement for it; None if there is none."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    if has_generation_markers(own):
        return own
    try:
        found: str | None = get_training_chat_template(tokenizer)
    except ValueError:
        return None
    return found


def unused(conversation: Conversation) -> str:
    """A character that does not occur in a conversation."""
    texts = [text or "" for one in conversation.messages for text in (one.content, one.tool_calls)]
    used = set().union(*texts, conversation.tools or "")
    # a call may contain the character as an escape
    if any("\\ud" in text or "\\ue" in text or "\\uf" in text for text in texts):
        used |= set(json.dumps(template_messages(conversation.messages), ensure_ascii=False))
    found = next((chr(code) for code in PRIVATE if chr(code) not in used), None)
    if found is None:
        raise UserError(f"conversation {conversation.conversation_id} holds every private character; leave it out")
    return found


def _pieces_by_span(text: str, spans: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    """The pieces of a text, each with whether it lies in a span."""
    at = 0
    for start, end in spans:
        yield text[at:start], False
        yield text[start:end], True
        at = end
    yield text[at:], False
