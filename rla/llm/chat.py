"""Chat turns as token ids: append-only, and safe against control tokens in what people or models wrote.

The tokenizer's own chat template is rendered around markers and split at them. Only the template's parts may
become control tokens; contents are encoded with special tokens switched off, so "<|im_end|>" in a content is
plain text. Headers of turns that are plain text themselves (`<|user|>`, `[INST]`, `USER:` in some templates) are broken
in contents. If a template trims a content, the trimmed content is encoded, so ids are those of the rendered text; a
reply that was sampled keeps its white space. For every reply, `first(messages) + reply + next_turn(content,
ended=...)` is one growing sequence: nothing that was sampled is ever encoded again. Tools are told by the template
itself, and their results stand in its own turns for them (`next_turns`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rla.errors import UserError
from rla.llm.base import Completion
from rla.models.load import generation_stops
from rla.models.rendering import rendering
from rla.store.texts import whole_text
from rla.text import TAG, broken, folded, open_thought

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTROL = re.compile(
    r"<[|\uff5c]|</?(?:s|think)>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
MARKUP = re.compile(r"[<\[]+[^\s<>\[\]]+[>\]]+")
PLACEHOLDER = re.compile(
    r"<(?=/?(?:image|img|video|vision|start_of_image|end_of_image|image_soft_token|audio)[\w|]*>)|\[(?=/?IMG)",
    re.IGNORECASE,
)
AS_CONTROL = re.compile(r"<[|\uff5c].+[|\uff5c]>", re.DOTALL)  # how control tokens are written, be they special or not
PAD = ("\n\t ", " \t\n")  # around contents, to see whether a template keeps it
INSIDE = ("Aa&<'\"\n\n\t  b ", " c\n\n  {{ d }}%}E")  # within contents, to see whether a template changes them
Message = dict[str, str]
CACHED_TEXTS = 65_536
CACHED_TEMPLATES = 256


def neutral(text: str) -> str:
    """`text` with the control strings of common chat templates broken: which of them act, the server alone knows."""
    return CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def plain_beside_pictures(text: str) -> str:
    """`neutral`, and nothing in it stands for a picture either: `< image>`."""
    return PLACEHOLDER.sub(lambda found: f"{found[0]} ", neutral(text))


def plain_headers(parts: Iterable[str], control: Sequence[str]) -> list[str]:
    """What begins a turn in `parts`, the texts that a template prints between contents, although it is plain text.

    A header with a control token of its own is safe, because no content becomes one. The tokens that a part begins with
    are not such tokens: they end the turn before. Raises ValueError for a part that is nothing but white space.
    """
    found: dict[str, None] = {}
    for part in parts:
        rest, leading = part.lstrip(), 0
        while first := next((string for string in control if rest.startswith(string)), ""):
            rest, leading = rest.removeprefix(first), leading + 1
        if any(string in rest for string in control) or (leading > 1 and rest.strip().isalnum()):
            continue  # the second token begins the turn: <|end|><|start|>assistant
        if not part.strip():
            raise ValueError("a turn begins with nothing but white space")
        for line in filter(str.strip, rest.splitlines(keepends=True)):
            headers = MARKUP.findall(line) or [line.strip()]
            if not line.endswith("\n") and any(map(words_alone, headers)):
                raise ValueError(f"a turn begins with plain words, {line.strip()!r}, on the line of its content,")
            found |= dict.fromkeys(headers)
    return list(found)


class PlainHeaders:
    """Breaks headers in contents, in any case: `< |user|>`, `[ INST]`, `USER :`. One of words alone is a header only as
    a line of its own, which gets a mark: `| user`.
    """

    def __init__(self, headers: Iterable[str]) -> None:
        forms = [header_form(folded(header)) for header in headers]
        self._pattern = re.compile("|".join(forms), re.MULTILINE) if forms else None

    def broken(self, text: str) -> str:
        if self._pattern is None:
            return text
        return broken(text, self._pattern, lambda found: " " if found[0].strip() else "| ")


def words_alone(header: str) -> bool:
    """Whether a header has nothing but its place to tell it from any other words."""
    return header.replace(" ", "").isalnum()


def header_form(header: str) -> str:
    """A pattern that ends where the header is to be broken."""
    if words_alone(header):
        return rf"^[ \t]*(?={re.escape(header)}[ \t]*$)"
    cut = len(header) - 1 if header[0].isalnum() else 1
    edge = r"(?<!\w)" if header[0].isalnum() else ""
    return rf"{edge}{re.escape(header[:cut])}(?={re.escape(header[cut:])})"


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """id -> string of every special token except "unknown", which plain text may well become, and of every other token
    that is written as one: in DeepSeek's tokenizers those that begin a turn are not marked as special.
    """
    control = {
        int(index): token.content
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special or AS_CONTROL.fullmatch(token.content)
    }
    for index, string in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
        control[int(index)] = str(string)
    if tokenizer.unk_token_id is not None:
        control.pop(int(tokenizer.unk_token_id), None)
    return control


@dataclass(frozen=True, slots=True)
class Trim:
    """Which white space around a content a template leaves out."""

    left: bool
    right: bool

    def applied(self, text: str) -> str:
        text = text.lstrip() if self.left else text
        return text.rstrip() if self.right else text


class ChatFrames(NamedTuple):
    """Ids of what a template prints before, between and after contents, and how it trims each of them."""

    ids: tuple[tuple[int, ...], ...]
    trims: tuple[Trim, ...]


class ChatFormat:
    """Chat rendering for one tokenizer. Raises UserError when its template changes more of a content than the white
    space around it, or when a content could pass for the beginning of a turn.

    `stop_ids` end an assistant turn when sampled, those of the model's `generation_config.json` among them; `end_id` is
    the one that the template itself writes.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._encoder = _plain_encoder(tokenizer)
        self._control = control_tokens(tokenizer)
        self._thoughts = {token: string for token, string in self._control.items() if TAG.fullmatch(string)}
        self.encode_cached = lru_cache(maxsize=CACHED_TEXTS)(self._encode)
        self._headers = PlainHeaders(self._plain_headers())
        self._template = lru_cache(maxsize=CACHED_TEMPLATES)(self._template_of)
        _, _, self._between, self._closing = self.frames(("user", "assistant", "user"))
        self.end_id = self._find_end()
        eos = tokenizer.eos_token_id
        own = {self.end_id} if eos is None else {self.end_id, int(eos)}
        name = tokenizer.name_or_path
        self.stop_ids = own | (generation_stops(str(name)) if name else frozenset())

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Prompt ids of a conversation, the header of the assistant's reply included. `tools`: JSON Schemas of
        functions, which the template prints in its own way.
        """
        template = self._template(
            tuple(message["role"] for message in messages), json.dumps(list(tools)) if tools else ""
        )
        opening, *parts = template.ids
        ids = list(opening)
        for message, part, trim in zip(messages, parts, template.trims, strict=True):
            ids += self.content_ids(message["role"], trim.applied(message["content"]))
            ids += part
        return ids

    def frames(self, roles: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Ids of what the template prints before, between and after the contents of a conversation."""
        return self._template(tuple(roles)).ids

    def trims(self, roles: Sequence[str]) -> tuple[Trim, ...]:
        """How the template trims each content of a conversation."""
        return self._template(tuple(roles)).trims

    def between(self, *, ended: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What stands before and after the content of a turn that follows a reply."""
        return (self._between[1:] if ended else self._between), self._closing

    def next_turn(self, content: str, *, ended: bool) -> list[int]:
        """Ids to append after a reply: its end (unless a stop token `ended` it), a user turn, a header."""
        between = self._between[1:] if ended else self._between
        trim = self.trims(("user", "assistant", "user"))[-1]
        return [*between, *self.encode_cached(trim.applied(content)), *self._closing]

    def next_turns(self, contents: Sequence[str], *, ended: bool, role: str) -> list[int]:
        """The same with several contents, each in a turn of `role`: the results of several calls of a tool."""
        template = self._template(("user", "assistant", *[role] * len(contents)))
        _, _, between, *parts = template.ids
        if between[0] != self.end_id:
            raise UserError(f"{self.tokenizer.name_or_path}: the chat template has no turns of the role {role!r}")
        ids = list(between[1:] if ended else between)
        for content, part, trim in zip(contents, parts, template.trims[2:], strict=True):
            ids += self.content_ids(role, trim.applied(content))
            ids += part
        return ids

    def tells(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the template prints the tools that it is given."""
        return self._split(("user",)) != self._split(("user",), list(map(dict, tools)))

    def written_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A turn of the assistant with a call, as the template prints it; empty if it prints no calls."""
        call = {"type": "function", "id": "call00000", "function": {"name": name, "arguments": dict(arguments)}}
        messages: list[Any] = [
            {"role": "user", "content": "qzx0xzq"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        from jinja2 import TemplateError

        try:
            whole = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        except (UserError, TemplateError, TypeError):
            return ""
        _, _, reply = str(whole).partition("qzx0xzq")
        return reply if name in reply else ""

    def content_ids(self, role: str, content: str) -> tuple[int, ...]:
        """Ids of a content as the template prints it: some print what a tool has said as a JSON text."""
        return self.encode_cached(self._printed(role, content))

    def _printed(self, role: str, content: str) -> str:
        return json.dumps(content, ensure_ascii=False)[1:-1] if role == "tool" and self._results_as_json else content

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; no control token can come out of it."""
        return list(self.encode_cached(text))

    def encode_once(self, text: str) -> list[int]:
        """`encode` for what a template has printed, such as the turns of a data set: its headers stay, and nothing is
        kept for another call.
        """
        return list(self._ids(text))

    @property
    def control(self) -> Mapping[int, str]:
        """The control tokens by their ids."""
        return self._control

    @cached_property
    def thinks(self) -> bool:
        """Whether replies may begin with a thought: the tokenizer has a tag for it, or the template opens one or leaves
        out those of earlier replies.
        """
        if any(TAG.fullmatch(token.content) for token in self.tokenizer.added_tokens_decoder.values()):
            return True
        said = {"role": "assistant", "content": "<think>\nqzxthoughtxzq\n</think>\n\na"}
        told = self._rendered([{"role": "user", "content": "q"}, said, {"role": "user", "content": "q"}], None)
        return bool(open_thought(self.reply_header)) or "qzxthoughtxzq" not in told

    @cached_property
    def reply_header(self) -> str:
        """What the template prints after a prompt's last content, up to where the reply begins."""
        return self._split(("user",))[-1]

    def decode(self, ids: Sequence[int]) -> str:
        """Text for people and parsers, control tokens left out, except those around thoughts: without them a thought
        would read like an answer.
        """
        if not self._thoughts.keys() & set(ids):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        pieces = groupby(ids, key=lambda token: self._thoughts.get(token, ""))
        return "".join(
            tag * len(list(run)) if tag else str(self.tokenizer.decode(list(run), skip_special_tokens=True))
            for tag, run in pieces
        )

    def without_headers(self, text: str) -> str:
        """`text` with headers of turns that are plain text broken."""
        return self._headers.broken(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return self._ids(self.without_headers(whole_text(text)))

    def _ids(self, text: str) -> tuple[int, ...]:
        ids = self._encoder(text)
        if self._control and not self._control.keys().isdisjoint(ids):
            # The switch is ignored, or spares tokens that are not marked as special: break the control strings.
            strings = sorted(filter(None, self._control.values()), key=len, reverse=True)
            pattern = "|".join(re.escape(string) for string in strings)
            broken = re.sub(pattern, lambda match: f"{match[0][0]} {match[0][1:]}", text)
            ids = [token for token in self._encoder(broken) if token not in self._control]
        return tuple(ids)

    def _template_of(self, roles: tuple[str, ...], tools: str = "") -> ChatFrames:
        told = json.loads(tools) if tools else None
        parts, padded, within = (self._split(roles, told, pad=pad) for pad in (("", ""), PAD, INSIDE))
        left, right = ([self._printed(role, pad) for role in roles] for pad in PAD)
        begins, ends = ([self._printed(role, pad) for role in roles] for pad in INSIDE)
        if within != [a + part + b for a, part, b in zip(["", *ends], parts, [*begins, ""], strict=True)]:
            raise UserError(
                f"{self.tokenizer.name_or_path}: the chat template changes contents; use a tokenizer with a plain chat "
                "template"
            )
        kept: list[list[bool]] = []  # of each part, whether the padding before and after it is there
        for part, shown, before, after in zip(parts, padded, ["", *right], [*left, ""], strict=True):
            found = [[a, b] for a in (False, True) for b in (False, True) if before * a + part + after * b == shown]
            if not found:
                raise UserError(
                    f"{self.tokenizer.name_or_path}: the chat template changes the white space around contents "
                    "otherwise than by trimming it; use a tokenizer with a plain chat template"
                )
            kept.append(found[0])
        return ChatFrames(
            ids=tuple(tuple(self.tokenizer.encode(part, add_special_tokens=False)) for part in parts),
            trims=tuple(Trim(left=not one[1], right=not other[0]) for one, other in pairwise(kept)),
        )

    def _plain_headers(self) -> list[str]:
        """Texts without a control token that begin a turn. Raises UserError for a turn that nothing begins."""
        control = sorted(filter(None, self._control.values()), key=len, reverse=True)
        parts = self._split(("user", "assistant", "user"))[1:]
        with suppress(UserError):  # a template may have no such turns
            parts += filter(str.strip, self._split(("user", "assistant", "tool"))[2:])
        with suppress(UserError):
            opening, after, _ = self._split(("system", "user"))
            begins = [string for string in control if string in opening and string in parts[0]]
            parts += filter(str.strip, [after, "" if begins else opening])
        try:
            return plain_headers(parts, control)
        except ValueError as fault:
            raise UserError(
                f"{self.tokenizer.name_or_path}: {fault} in the chat template, so a content could begin another turn; "
                "use a tokenizer with a plain chat template"
            ) from None

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

    def _split(
        self, roles: tuple[str, ...], tools: list[dict[str, Any]] | None = None, pad: tuple[str, str] = ("", "")
    ) -> list[str]:
        """What the template prints around contents, each of which stands between `pad`."""
        markers = [f"qzx{index}xzq" for index in range(len(roles))]
        contents = [f"{pad[0]}{marker}{pad[1]}" for marker in markers]
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
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


def reply_text(completion: Completion, chat: ChatFormat) -> str:
    """What was sampled, without the token that ended it. If the template itself opens the thought, its tag comes
    first: whoever reads the text sees where the thought begins, and whether it ends.
    """
    ids = completion.token_ids
    thought = "" if any(completion.allowed) else open_thought(chat.reply_header)  # no listed reply thinks
    return thought + chat.decode(ids[:-1] if ids and ids[-1] in chat.stop_ids else ids)


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
