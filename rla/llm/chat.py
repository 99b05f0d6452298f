"""Chat turns as token ids: append-only, and safe against control tokens in what people or models wrote.

The tokenizer's own chat template is rendered around markers and split at them. Only the template's parts may
become control tokens; contents are encoded with special tokens switched off, so "<|im_end|>" in a content is
plain text. For every reply, `first(messages) + reply + next_turn(content, ended=...)` is one growing
sequence: nothing that was sampled is ever encoded again. Tools are told by the template itself, and their results
stand in its own turns for them (`next_turns`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.rendering import rendering
from rla.store.texts import whole_text

if TYPE_CHECKING:
    from rla.models.plain_tokenizer import ChatTokenizer

Message = dict[str, str]
CACHED_TEXTS = 65_536
CACHED_TEMPLATES = 256
MARKUP = re.compile(
    r"<[|\uff5c].+[|\uff5c]>", re.DOTALL
)  # how control tokens are written, be they marked as special or not


class ChatFormat:
    """Chat rendering for one tokenizer. Raises UserError when its template does not print contents unchanged.

    `stop_ids` end an assistant turn when sampled; `end_id` is the one that the template itself writes.
    """

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self._encoder = _plain_encoder(tokenizer)
        self._control = _control_tokens(tokenizer)
        self.encode_cached = lru_cache(maxsize=CACHED_TEXTS)(self._encode)
        self._template = lru_cache(maxsize=CACHED_TEMPLATES)(self._template_ids)
        _, _, self._between, self._closing = self._template(("user", "assistant", "user"))
        self.end_id = self._find_end()
        eos = tokenizer.eos_token_id
        self.stop_ids = frozenset({self.end_id} if eos is None else {self.end_id, int(eos)})

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Prompt ids of a conversation, the header of the assistant's reply included. `tools`: JSON Schemas of
        functions, which the template prints in its own way.
        """
        roles = tuple(message["role"] for message in messages)
        opening, *parts = self._template(roles, json.dumps(list(tools)) if tools else "")
        ids = list(opening)
        for message, part in zip(messages, parts, strict=True):
            ids += self.content_ids(message["role"], message["content"])
            ids += part
        return ids

    def frames(self, roles: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Ids of what the template prints before, between and after the contents of a conversation."""
        return self._template(tuple(roles))

    def between(self, *, ended: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What stands before and after the content of a turn that follows a reply."""
        return (self._between[1:] if ended else self._between), self._closing

    def next_turn(self, content: str, *, ended: bool) -> list[int]:
        """Ids to append after a reply: its end (unless a stop token `ended` it), a user turn, a header."""
        between = self._between[1:] if ended else self._between
        return [*between, *self.encode_cached(content), *self._closing]

    def next_turns(self, contents: Sequence[str], *, ended: bool, role: str) -> list[int]:
        """The same with several contents, each in a turn of `role`: the results of several calls of a tool."""
        _, _, between, *parts = self._template(("user", "assistant", *[role] * len(contents)))
        if between[0] != self.end_id:
            raise UserError(f"{self.tokenizer.name_or_path}: the chat template has no turns of the role {role!r}")
        ids = list(between[1:] if ended else between)
        for content, part in zip(contents, parts, strict=True):
            ids += self.content_ids(role, content)
            ids += part
        return ids

    def content_ids(self, role: str, content: str) -> tuple[int, ...]:
        """Ids of a content as the template prints it: some print what a tool has said as a JSON text."""
        as_json = role == "tool" and self._results_as_json
        return self.encode_cached(json.dumps(content, ensure_ascii=False)[1:-1] if as_json else content)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; no control token can come out of it."""
        return list(self.encode_cached(text))

    def encode_once(self, text: str) -> list[int]:
        """`encode` for texts that do not come back, such as those of a data set: nothing is kept of them."""
        return list(self._encode(text))

    @property
    def control(self) -> Mapping[int, str]:
        """The control tokens by their ids."""
        return self._control

    def decode(self, ids: Sequence[int]) -> str:
        """Text for people and parsers, control tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _encode(self, text: str) -> tuple[int, ...]:
        text = whole_text(text)
        ids = self._encoder(text)
        if self._control and not self._control.keys().isdisjoint(ids):
            # The switch is ignored, or spares tokens that are not marked as special: break the control strings.
            strings = sorted(filter(None, self._control.values()), key=len, reverse=True)
            pattern = "|".join(re.escape(string) for string in strings)
            broken = re.sub(pattern, lambda match: f"{match[0][0]} {match[0][1:]}", text)
            ids = [token for token in self._encoder(broken) if token not in self._control]
        return tuple(ids)

    def _template_ids(self, roles: tuple[str, ...], tools: str = "") -> tuple[tuple[int, ...], ...]:
        """Ids of what the template prints before, between and after contents; one part more than roles."""
        parts = self._split(roles, json.loads(tools) if tools else None)
        return tuple(tuple(self.tokenizer.encode(part, add_special_tokens=False)) for part in parts)

    @cached_property
    def _results_as_json(self) -> bool:
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        rendered = self._rendered([*messages, {"role": "tool", "content": 'qzx"xzq'}], None)
        return 'qzx\\"xzq' in rendered

    def _rendered(self, messages: list[Message], tools: list[dict[str, Any]] | None) -> str:
        told = {"tools": tools} if tools else {}
        with rendering(str(self.tokenizer.name_or_path)):
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **told)
        return str(text)

    def _split(self, roles: tuple[str, ...], tools: list[dict[str, Any]] | None = None) -> list[str]:
        markers = [f"qzx{index}xzq" for index in range(len(roles))]
        messages = [{"role": role, "content": marker} for role, marker in zip(roles, markers, strict=True)]
        rendered = self._rendered(messages, tools)
        parts = []
        for marker in markers:
            if rendered.count(marker) != 1:
                raise UserError(
                    f"{self.tokenizer.name_or_path}: the chat template does not print every content once; "
                    "use a tokenizer with a plain chat template"
                )
            before, rendered = rendered.split(marker)
            parts.append(before)
        return [*parts, rendered]

    def _find_end(self) -> int:
        if not self._between or self._between[0] not in self._control:
            raise UserError(
                f"{self.tokenizer.name_or_path}: the chat template does not end the assistant's turn with a "
                "control token; use an instruct model's template"
            )
        return self._between[0]


def _plain_encoder(tokenizer: Any) -> Any:
    """str -> list of ids, special tokens switched off. A copy: the switch is the backend's state."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(backend.to_str())
    plain.encode_special_tokens = True
    plain.no_truncation()
    plain.no_padding()
    return lambda text: plain.encode(text, add_special_tokens=False).ids


def _control_tokens(tokenizer: ChatTokenizer) -> dict[int, str]:
    """id -> string of every special token except "unknown", which plain text may well become, and of every other token
    that is written as one: in DeepSeek's tokenizers those that begin a turn are not marked as special.
    """
    control = {
        int(index): token.content
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special or MARKUP.fullmatch(token.content)
    }
    for index, string in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
        control[int(index)] = str(string)
    if tokenizer.unk_token_id is not None:
        control.pop(int(tokenizer.unk_token_id), None)
    return control
