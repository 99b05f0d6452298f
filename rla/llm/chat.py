"""Chat turns as token ids: append-only, and safe against control tokens in text that people or models wrote.

The tokenizer's own chat template is rendered around markers and split at them. Only the template's parts may become
control tokens; contents are encoded with special tokens switched off, so "<|im_end|>" in a content is plain text.
Headers of turns that are plain text themselves (`<|user|>`, `[INST]`, `USER:` in some templates) are broken in
contents. If a template trims a content, the trimmed content is encoded, so the ids are those of the rendered text; a
sampled reply keeps its white space. For every reply, `first(messages) + reply + next_turn(content, ended=...)` is one
growing sequence: sampled tokens are never encoded again. The template itself prints tools and their results
(`next_turns`).

Anyone may have written a template, and nested loops in it can run for ever, so rendering has a time limit.
"""

from __future__ import annotations

import ctypes
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rla.errors import UserError
from rla.llm.base import Completion
from rla.models.load import generation_stops
from rla.text import TAG, broken, folded, open_thought, whole_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARKUP = re.compile(r"[<\[]+[^\s<>\[\]]+[>\]]+")
# Control tokens are written like this, even if the tokenizer does not mark them as special.
AS_CONTROL = re.compile(r"<[|\uff5c].+[|\uff5c]>", re.DOTALL)
THOUGHT = re.compile(
    rf"{TAG.pattern}|<\|channel\|>", re.IGNORECASE
)  # control tokens that are such a tag, or the beginning of one
PAD = ("\n\t ", " \t\n")  # around contents, to see whether a template keeps it
INSIDE = ("Aa&<'\"\n\n\t  b ", " c\n\n  {{ d }}%}E")  # in contents, to see whether a template changes them
Message = dict[str, str]
V = TypeVar("V")
CACHED_BYTES = 1 << 27  # of each cache, about: anyone may have written the texts
ENTRY_BYTES, LETTER_BYTES, ID_BYTES = 200, 4, 40  # of an entry at most, and of its letters and token ids
RENDER_SECONDS = 10.0  # limit of a rendering, which takes milliseconds


class _Template(NamedTuple):
    """How a template prints a conversation: the ids before, between and after contents, and whether it trims the left
    and the right of each content.
    """

    ids: tuple[tuple[int, ...], ...]
    trims: tuple[tuple[bool, bool], ...]


class ChatFormat:
    """Encodes chats for one tokenizer.

    `template(roles)`: how the template prints a conversation of these roles. `stop_ids` end an assistant turn when
    sampled, including those of the model's `generation_config.json`; `end_id` is
    the one that the template writes. `control` maps control token ids to their strings. Raises UserError if the
    template changes more of a content than the white space around it, or if a content could pass for the start of a
    turn.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._name = str(tokenizer.name_or_path)
        self._encoder = _plain_encoder(tokenizer)
        self.control = _control_tokens(tokenizer)
        self._longest_first = sorted(filter(None, self.control.values()), key=len, reverse=True)
        self._thoughts = {token: string for token, string in self.control.items() if THOUGHT.fullmatch(string)}
        self._cached = _cached(lambda text: self._ids(self.without_headers(whole_text(text))), size=len)
        self.template = _cached(self._template_of, size=lambda found: sum(map(len, found.ids)))
        self._headers = _header_pattern(self._plain_headers())
        between = self.template(("user", "assistant", "user")).ids[2]
        if not between or between[0] not in self.control:
            raise UserError(
                f"{self._name}: the chat template does not end the assistant's turn with a control token; use an "
                "instruct model's template"
            )
        self.end_id = between[0]
        eos = tokenizer.eos_token_id
        own = {self.end_id} if eos is None else {self.end_id, int(eos)}
        self.stop_ids = own | (generation_stops(self._name) if self._name else frozenset())

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Prompt ids of a conversation up to the header of the reply. `tools` are JSON Schemas of functions."""
        roles = tuple(message["role"] for message in messages)
        template = self.template(roles, json.dumps(list(tools)) if tools else "")
        opening, *parts = template.ids
        ids = list(opening)
        for message, part, trim in zip(messages, parts, template.trims, strict=True):
            ids += self.content_ids(message["role"], _trimmed(message["content"], trim))
            ids += part
        return ids

    def next_turn(self, content: str, *, ended: bool) -> list[int]:
        """Ids to append after a reply: its end (unless a stop token `ended` it), a user turn, and a header."""
        return self.next_turns([content], ended=ended, role="user")

    def next_turns(self, contents: Sequence[str], *, ended: bool, role: str | Sequence[str]) -> list[int]:
        """`next_turn` with several contents, such as results of tool calls. `role`: of all turns, or of each."""
        roles = [role] * len(contents) if isinstance(role, str) else role
        template = self.template(("user", "assistant", *roles))
        _, _, between, *parts = template.ids
        if between[0] != self.end_id:
            raise UserError(f"{self._name}: the chat template has no turns of the role {role!r}")
        ids = list(between[1:] if ended else between)
        for turn, content, part, trim in zip(roles, contents, parts, template.trims[2:], strict=True):
            ids += self.content_ids(turn, _trimmed(content, trim))
            ids += part
        return ids

    def tells(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the template prints tools."""
        return self._split(("user",)) != self._split(("user",), list(map(dict, tools)))

    def written_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """An assistant turn with a call as the template prints it, or an empty text if it prints no calls."""
        call = {"type": "function", "id": "call00000", "function": {"name": name, "arguments": dict(arguments)}}
        messages: list[Any] = [
            {"role": "user", "content": "qzx0xzq"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        try:
            whole = self._rendered(messages, None, header=False)
        except UserError:
            return ""
        _, _, reply = whole.partition("qzx0xzq")
        return reply if name in reply else ""

    def content_ids(self, role: str, content: str) -> tuple[int, ...]:
        """Ids of a content as the template prints it; some print tool results as JSON strings."""
        return self._cached(self._printed(role, content))

    def _printed(self, role: str, content: str) -> str:
        return json.dumps(content, ensure_ascii=False)[1:-1] if role == "tool" and self._results_as_json else content

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, never control tokens."""
        return list(self._cached(text))

    def encode_once(self, text: str) -> list[int]:
        """`encode` for text that a template has printed, such as the turns of a data set: headers are kept as they are,
        and nothing is cached.
        """
        return list(self._ids(text))

    @cached_property
    def thinks(self) -> bool:
        """Whether replies may begin with a thought: the tokenizer has a tag for it, or the template opens one or drops
        the thoughts of earlier replies.
        """
        if any(THOUGHT.fullmatch(token.content) for token in self.tokenizer.added_tokens_decoder.values()):
            return True
        said = {"role": "assistant", "content": "<think>\nqzxthoughtxzq\n</think>\n\na"}
        told = self._rendered([{"role": "user", "content": "q"}, said, {"role": "user", "content": "q"}], None)
        return bool(open_thought(self.reply_header)) or "qzxthoughtxzq" not in told

    @cached_property
    def reply_header(self) -> str:
        """The text that the template prints between a prompt's last content and the reply."""
        return self._split(("user",))[-1]

    def decode(self, ids: Sequence[int]) -> str:
        """Text for people and parsers, without control tokens other than those around thoughts, without which a thought
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
        """`text` with plain-text headers of turns broken, in any case: `< |user|>`, `[ INST]`, `USER :`, `| user`."""
        if self._headers is None:
            return text
        return broken(text, self._headers, lambda found: " " if found[0].strip() else "| ")

    def _ids(self, text: str) -> tuple[int, ...]:
        ids = self._encoder(text)
        if self.control and not self.control.keys().isdisjoint(ids):
            # The tokenizer ignores the switch, or does not mark these tokens as special: break their strings.
            pattern = "|".join(map(re.escape, self._longest_first))
            spaced = re.sub(pattern, lambda match: f"{match[0][0]} {match[0][1:]}", text)
            ids = [token for token in self._encoder(spaced) if token not in self.control]
        return tuple(ids)

    def _template_of(self, roles: tuple[str, ...], tools: str = "") -> _Template:
        told = json.loads(tools) if tools else None
        parts, padded, within = (self._split(roles, told, pad=pad) for pad in (("", ""), PAD, INSIDE))
        left, right = ([self._printed(role, pad) for role in roles] for pad in PAD)
        begins, ends = ([self._printed(role, pad) for role in roles] for pad in INSIDE)
        if within != [a + part + b for a, part, b in zip(["", *ends], parts, [*begins, ""], strict=True)]:
            raise self._not_plain("changes contents")
        kept: list[list[bool]] = []  # per part: is the padding before and after it there?
        for part, shown, before, after in zip(parts, padded, ["", *right], [*left, ""], strict=True):
            found = [[a, b] for a in (False, True) for b in (False, True) if before * a + part + after * b == shown]
            if not found:
                raise self._not_plain("changes the white space around contents otherwise than by trimming it")
            kept.append(found[0])
        return _Template(
            ids=tuple(tuple(self.tokenizer.encode(part, add_special_tokens=False)) for part in parts),
            trims=tuple((not one[1], not other[0]) for one, other in pairwise(kept)),
        )

    def _not_plain(self, fault: str) -> UserError:
        return UserError(f"{self._name}: the chat template {fault}; use a tokenizer with a plain chat template")

    def _plain_headers(self) -> list[str]:
        """The plain texts that begin a turn. Raises UserError if a content could pass for one.

        A header with its own control token is safe, because no content becomes one. Control tokens at the start of a
        part do not count: they end the previous turn.
        """
        control = self._longest_first
        parts = self._split(("user", "assistant", "user"))[1:]
        with suppress(UserError):  # a template may have no such turns
            parts += filter(str.strip, self._split(("user", "assistant", "tool"))[2:])
        with suppress(UserError):
            opening, after, _ = self._split(("system", "user"))
            begins = [string for string in control if string in opening and string in parts[0]]
            parts += filter(str.strip, [after, "" if begins else opening])
        found: dict[str, None] = {}
        for part in parts:
            rest, leading = part.lstrip(), 0
            while first := next((string for string in control if rest.startswith(string)), ""):
                rest, leading = rest.removeprefix(first), leading + 1
            if any(string in rest for string in control) or (leading > 1 and rest.strip().isalnum()):
                continue  # the second token begins the turn: <|end|><|start|>assistant
            if not part.strip():
                raise self._not_plain("begins a turn with nothing but white space, so a content could begin another")
            for line in filter(str.strip, rest.splitlines(keepends=True)):
                headers = MARKUP.findall(line) or [line.strip()]
                if not line.endswith("\n") and any(map(_is_words, headers)):
                    said = f"begins a turn with plain words, {line.strip()!r}, on the line of its content"
                    raise self._not_plain(f"{said}, so a content could begin another")
                found |= dict.fromkeys(headers)
        return list(found)

    @cached_property
    def _results_as_json(self) -> bool:
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        rendered = self._rendered([*messages, {"role": "tool", "content": 'qzx"xzq'}], None)
        return 'qzx\\"xzq' in rendered

    def _rendered(self, messages: list[Message], tools: list[dict[str, Any]] | None, *, header: bool = True) -> str:
        told: dict[str, Any] = {"tools": tools} if tools else {}
        render = partial(self.tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=header)
        try:
            return rendered_in_time(self._name, lambda: str(render(messages, **told)))
        except UserError:
            raise
        except Exception as error:  # whatever Jinja and the template's own code raise
            said = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self._name}: its chat template cannot be used ({said})") from error

    def _split(
        self, roles: tuple[str, ...], tools: list[dict[str, Any]] | None = None, pad: tuple[str, str] = ("", "")
    ) -> list[str]:
        """The texts that the template prints around contents, each of which is enclosed in `pad`."""
        markers = [f"qzx{index}xzq" for index in range(len(roles))]
        contents = [f"{pad[0]}{marker}{pad[1]}" for marker in markers]
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        rendered = self._rendered(messages, tools)
        parts = []
        for marker in markers:
            if rendered.count(marker) != 1:
                raise self._not_plain("does not print every content once")
            before, rendered = rendered.split(marker)
            parts.append(before)
        return [*parts, rendered]


def _cached(function: Callable[..., V], *, size: Callable[[V], int]) -> Callable[..., V]:
    """The function, with as many of its latest results as CACHED_BYTES hold. `size`: tokens of a result."""
    kept, total, lock = dict[tuple[Any, ...], tuple[V, int]](), 0, threading.Lock()

    def call(*key: Any) -> V:
        nonlocal total
        with lock:
            if found := kept.pop(key, None):
                kept[key] = found  # now the last to go
                return found[0]
        value = function(*key)
        cost = ENTRY_BYTES + LETTER_BYTES * sum(map(len, key)) + ID_BYTES * size(value)
        with lock:
            if key not in kept and cost <= CACHED_BYTES:
                kept[key], total = (value, cost), total + cost
            while total > CACHED_BYTES:
                total -= kept.pop(next(iter(kept)))[1]
        return value

    return call


def reply_text(completion: Completion, chat: ChatFormat) -> str:
    """The text of a completion without the token that ended it. If the template itself opens the thought, its tag comes
    first, so that readers see the beginning of the thought, and whether it ends.
    """
    ids = completion.token_ids
    thought = "" if any(completion.allowed) else open_thought(chat.reply_header)  # a restricted reply never thinks
    return thought + chat.decode(ids[:-1] if ids and ids[-1] in chat.stop_ids else ids)


def _plain_encoder(tokenizer: Any) -> Any:
    """str -> list of ids, special tokens switched off, on a copy because the switch is part of the backend's state."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(backend.to_str())
    plain.encode_special_tokens = True
    plain.no_truncation()
    plain.no_padding()
    return lambda text: plain.encode(text, add_special_tokens=False).ids


def rendered_in_time(name: str, render: Callable[[], V]) -> V:
    """The result of `render`. UserError if the template of the tokenizer `name` takes too long; other errors pass.

    Jinja runs templates as Python code in this thread; the interpreter raises `_TemplateOverdue` in it between two
    operations, so no context manager's own frames may stand between the template and the handler.
    """
    thread, lock, over = threading.get_ident(), threading.Lock(), threading.Event()

    def end() -> None:
        with lock:
            if not over.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TemplateOverdue))

    timer = threading.Timer(RENDER_SECONDS, end)
    timer.daemon = True
    try:
        try:
            timer.start()
            return render()
        finally:
            with lock:
                over.set()
                # Cancel an exception that has been set and not yet raised.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
            timer.cancel()
    except _TemplateOverdue:
        said = f"its chat template is not rendered after {RENDER_SECONDS:g} s"
        raise UserError(f"{name}: {said}; use an instruct model's own template") from None


class _TemplateOverdue(BaseException):
    """Raised inside a template. Not an Exception, so that no filter swallows it."""


def _control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """id -> string of every special token except "unknown", which plain text may become, and of every other token that
    is written like one: DeepSeek's tokenizers do not mark those that begin a turn as special.
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


def _is_words(header: str) -> bool:
    """Whether only its position distinguishes a header from other words."""
    return header.replace(" ", "").isalnum()


def _header_pattern(headers: Iterable[str]) -> re.Pattern[str] | None:
    """Matches the part of a header before the place to break it. Plain words match only as a line of their own."""
    forms = []
    for header in map(folded, headers):
        if _is_words(header):
            forms.append(rf"^[ \t]*(?={re.escape(header)}[ \t]*$)")
            continue
        cut = len(header) - 1 if header[0].isalnum() else 1
        edge = r"(?<!\w)" if header[0].isalnum() else ""
        forms.append(rf"{edge}{re.escape(header[:cut])}(?={re.escape(header[cut:])})")
    return re.compile("|".join(forms), re.MULTILINE) if forms else None


def _trimmed(text: str, trim: tuple[bool, bool]) -> str:
    text = text.lstrip() if trim[0] else text
    return text.rstrip() if trim[1] else text
