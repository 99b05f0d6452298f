"""Which tokenizer made these token ids: a fingerprint of a model folder's tokenizer, and the refusal of another.

Equal fingerprints: text becomes the same ids, and ids mean the same text. It is taken over vocabulary, merges,
normalizer, pre-tokenizer, added tokens and chat template. What changes when a tokenizer is merely saved again is left
out: the order of keys, the notation of merges, which file holds template or added tokens, padding and truncation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.record import MANIFEST

# Where there is no tokenizer.json: the files that slow tokenizers are made from, compared as they are.
OTHER_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")


def tokenizer_fingerprint(folder: Path) -> str | None:
    """16 hex digits; None for a folder without tokenizer files, and for a hub id, which is not looked up.

    Raises UserError for a file that is not valid JSON.
    """
    try:
        return _fingerprint(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder}: its tokenizer's files are not those of a tokenizer ({type(error).__name__}: {error}); save the "
            "tokenizer into its folder again"
        ) from None


def _fingerprint(folder: Path) -> str | None:
    settings = _read(folder / "tokenizer_config.json")
    backend = _read(folder / "tokenizer.json")
    model = backend.get("model") or {}
    files = {} if backend else {name: _digest(folder / name) for name in OTHER_FILES if (folder / name).is_file()}
    if not backend and not files:
        return None
    defining = {
        "files": files,
        "type": model.get("type"),
        "vocabulary": model.get("vocab"),
        "merges": [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or []],
        "normalizer": backend.get("normalizer"),
        "pre_tokenizer": backend.get("pre_tokenizer"),
        "added": sorted(_added_tokens(backend, settings, _read(folder / "added_tokens.json")).items()),
        "template": _template(folder, settings),
    }
    return hashlib.sha256(json.dumps(defining, sort_keys=True).encode()).hexdigest()[:16]


def refuse_other_tokenizer(folder: Path, *, recorded: str | None, shard: Path) -> None:
    """Raises UserError where the model of `folder` has another tokenizer than the one that `shard` records.

    Nothing can be compared, and nothing is refused, where the shard records none (no model made it) and where
    `folder` has none.
    """
    found = tokenizer_fingerprint(folder)
    if recorded is not None and found is not None and found != recorded:
        raise UserError(
            f"{shard / MANIFEST}: its token ids were made with another tokenizer ({recorded}) than that of "
            f"{folder} ({found}); train the checkpoint that made the shard, or make the shard again with this one"
        )


def _added_tokens(backend: dict[str, Any], settings: dict[str, Any], listed: dict[str, Any]) -> dict[int, str]:
    """Id and text, from whichever of the three files holds them."""
    added = {int(index): str(text) for text, index in listed.items()}
    added |= {int(index): str(token["content"]) for index, token in settings.get("added_tokens_decoder", {}).items()}
    return added | {int(token["id"]): str(token["content"]) for token in backend.get("added_tokens") or []}


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The default chat template, from its own file or the settings. Jinja drops a newline at its end."""
    file = folder / "chat_template.jinja"
    found = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(found, list):
        found = next((one["template"] for one in found if one["name"] == "default"), None)
    return None if found is None else str(found).removesuffix("\n")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _read(file: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is no file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise UserError(f"{file}: not valid JSON; save the tokenizer into its folder again") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a JSON object; save the tokenizer into its folder again")
    return content
