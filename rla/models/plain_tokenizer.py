"""The part of a Hugging Face tokenizer that prompts need, on `tokenizers` alone: nothing of transformers is imported.

A stage whose engine is another process needs no more of a model than this, and importing transformers would cost it
more than all its other imports. Ids, texts and rendered templates are those of transformers' class; folders for which
that is not certain (another class, special tokens that `tokenizer.json` lacks, cleaned-up text) are left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from rla.errors import UserError
from rla.models.load import GENERIC_TOKENIZERS, folder_of, load_tokenizer
from rla.models.rendering import rendering

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TEMPLATE, SETTINGS, BACKEND = "chat_template.jinja", "tokenizer_config.json", "tokenizer.json"
GENERATION = "generation_config.json"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MORE = ("additional_special_tokens", "extra_special_tokens")


class ChatTokenizer(Protocol):
    """What `rla.llm.chat` asks of a tokenizer; those of transformers have it, too."""

    @property
    def name_or_path(self) -> str: ...

    @property
    def eos_token_id(self) -> Any: ...

    @property
    def unk_token_id(self) -> Any: ...

    @property
    def all_special_ids(self) -> list[int]: ...

    @property
    def all_special_tokens(self) -> list[str]: ...

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> Any: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tools: list[dict[str, Any]] | None = None,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> Any: ...


def load_chat_tokenizer(source: str | Path) -> ChatTokenizer:
    """The tokenizer of a folder or hub id, as light as it can be. Raises UserError as `load_tokenizer` does."""
    folder = folder_of(source)
    light = None if folder is None else PlainTokenizer.of(folder)
    return light if light is not None else cast("ChatTokenizer", load_tokenizer(source))


def generation_stops(source: str) -> frozenset[int]:
    """The tokens that end a reply by `generation_config.json` of a model folder or hub id: often more than the
    tokenizer's own. Raises UserError for a file that does not say so.
    """
    file = Path(source) / GENERATION if Path(source).is_dir() else hub_file(source, GENERATION)
    if file is None or not file.is_file():
        return frozenset()
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        stops = found if isinstance(found, list) else [] if found is None else [found]
        if all(type(one) is int and one >= 0 for one in stops):
            return frozenset(stops)
    except (OSError, ValueError, AttributeError, RecursionError):
        pass
    raise UserError(f"{file}: eos_token_id must be a token id or a list of them; fetch or write the file again")


def hub_file(source: str, name: str) -> Path | None:
    """A file of a model on the hub, fetched if it is not there yet; None if `source` is no hub id or lacks the file."""
    if not HUB_ID.fullmatch(source):
        return None
    from transformers.utils import cached_file

    found = None
    with suppress(OSError):
        found = cached_file(
            source,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    return None if found is None else Path(found)


class PlainTokenizer:
    """A tokenizer of transformers' generic class. `template` is Jinja's source."""

    def __init__(self, backend: Tokenizer, *, settings: Mapping[str, Any], template: str, folder: Path) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend_tokenizer = backend
        self.name_or_path = str(folder)
        self._named = {name: text for name in NAMED if (text := content_of(settings.get(name))) is not None}
        self.all_special_tokens = tokens = special_tokens(settings)
        self.all_special_ids = [index for token in tokens if (index := backend.token_to_id(token)) is not None]
        self.eos_token_id, self.unk_token_id = self._id("eos_token"), self._id("unk_token")
        self.added_tokens_decoder: dict[int, AddedToken] = backend.get_added_tokens_decoder()
        self._template = compiled(template)

    @classmethod
    def of(cls, folder: Path) -> PlainTokenizer | None:
        """None for a folder that is left to transformers."""
        from tokenizers import Tokenizer

        try:
            settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            if not isinstance(settings, dict):
                return None
            file = folder / TEMPLATE
            template = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
            generic = settings.get("tokenizer_class") in GENERIC_TOKENIZERS and "added_tokens_decoder" not in settings
            if not generic or settings.get("clean_up_tokenization_spaces") or not isinstance(template, str):
                return None
            data = (folder / BACKEND).read_bytes()
        except (OSError, ValueError):
            return None  # transformers says what is wrong with it
        except RecursionError:
            raise UserError(
                f"{folder / SETTINGS}: nested too deeply; save the tokenizer into its folder again"
            ) from None
        try:
            backend = Tokenizer.from_buffer(data)
        except Exception as error:  # tokenizers has no error of its own
            raise UserError(f"{folder / BACKEND}: cannot be read ({error}); save the tokenizer again") from None
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        if not template or not special.issuperset(special_tokens(settings)):
            return None
        with rendering(str(folder)):
            return cls(backend, settings=settings, template=template, folder=folder)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        return self.backend_tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tools: list[dict[str, Any]] | None = None,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> str:
        """The rendered text. Raises UserError for a template that refuses the conversation."""
        from jinja2 import TemplateError

        if tokenize:
            raise ValueError("text only: the contents of a conversation are encoded apart from its template")
        values = {**self._named, "messages": conversation, "tools": tools, "documents": None}
        try:
            return str(self._template.render(**values, add_generation_prompt=add_generation_prompt))
        except TemplateError as error:
            raise UserError(f"{self.name_or_path}: its chat template cannot be used ({error})") from error

    def _id(self, name: str) -> int | None:
        return self.backend_tokenizer.token_to_id(self._named[name]) if name in self._named else None


def content_of(token: Any) -> str | None:
    """A special token is a text, or an object with its content."""
    return token.get("content") if isinstance(token, dict) else token


def special_tokens(settings: Mapping[str, Any]) -> list[str]:
    """All that the settings name, once each, in transformers' order."""
    found = [content_of(settings.get(name)) for name in NAMED]
    for name in MORE:
        more = settings.get(name) or ()
        found += [content_of(token) for token in (more.values() if isinstance(more, dict) else more)]
    return list(dict.fromkeys(token for token in found if token is not None))


def compiled(template: str) -> Any:
    """The template in an environment like that of transformers."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what an assistant has said; here it is text like the rest."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, **more: Any) -> str:
        return json.dumps(value, **({"ensure_ascii": False} | more))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda text: datetime.now().strftime(text)
    return environment.from_string(template)
