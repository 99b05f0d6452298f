"""Load a causal language model or a tokenizer from a Hugging Face folder, or from the hub by its id.

A missing file is a UserError that names the folder and the remedy, in place of a library's stack trace.

A tokenizer's fingerprint tells which tokenizer made some token ids. It covers vocabulary, merges, normalizer,
pre-tokenizer, added tokens and chat template: equal fingerprints turn text into the same ids and back. It ignores
everything that changes when a tokenizer is merely saved again: the order of keys, the notation of merges, which file
holds template or added tokens, padding and truncation.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from rla.errors import UserError
from rla.models.checkpoint import BASE, add_adapter, base_of, check_model_folder, has_weights, parts_of
from rla.store.layout import making_call
from rla.store.manifest import MANIFEST

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
WEIGHT_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*")
GENERATION = "generation_config.json"
# The files of tokenizers without tokenizer.json, which a fingerprint compares as they are.
SLOW_TOKENIZER_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
GENERIC_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Raises UserError if there is none or it has no chat template."""
    folder = folder_of(source)
    if folder is not None:
        if not any((folder / name).is_file() for name in TOKENIZER_FILES):
            raise UserError(f"{folder}: no tokenizer files; save the tokenizer beside the weights")
        with loadable(source):
            tokenizer = _load_local_tokenizer(folder)
    else:
        from transformers import AutoTokenizer

        with loadable(source):
            tokenizer = AutoTokenizer.from_pretrained(str(source), trust_remote_code=False)
    if not tokenizer.chat_template:
        raise UserError(
            f"{source}: the tokenizer has no chat template; use an instruct model or add chat_template.jinja"
        )
    return cast("PreTrainedTokenizerBase", tokenizer)


def load_model(source: str | Path, *, dtype: str = "float32", device: str = "cpu") -> PreTrainedModel:
    """The causal language model, or vision-language model, in evaluation mode, weights as `dtype` on `device`. An
    adapter is added to its base.

    Raises UserError if files are missing or cannot be loaded.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # a bar per load would flood the log of a stage

    folder = folder_of(source)
    parts = parts_of(folder or source)
    if parts.adapter is not None:
        whole = load_model(parts.base, dtype=dtype, device=device)
        with loadable(source):
            add_adapter(whole, parts.adapter)
        return whole
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder}: no config.json; this is not a Hugging Face model folder")
        if not any(any(folder.glob(pattern)) for pattern in WEIGHT_PATTERNS):
            raise UserError(f"{folder}: no weights (*.safetensors); copy them into the folder or train the model again")
    if dtype not in ("float32", "bfloat16", "float16"):
        raise UserError(f"dtype {dtype!r} is not one of float32, bfloat16, float16")
    with loadable(source):
        loads = _loading_class(_config_of(folder or source))
        model: Any = loads.from_pretrained(str(folder or source), dtype=getattr(torch, dtype), trust_remote_code=False)
    return cast("PreTrainedModel", model.to(device).eval())


def hollow_model(folder: Path | str) -> PreTrainedModel:
    """The model of a folder or hub id in evaluation mode, its fp32 parameters on the meta device, its buffers real."""
    import torch
    from accelerate import init_empty_weights

    with loadable(folder):
        config = _config_of(folder)
    with loadable(folder), init_empty_weights(include_buffers=False):
        model: Any = _loading_class(config).from_config(config, dtype=torch.float32, trust_remote_code=False)
    return cast("PreTrainedModel", model.eval())


@contextmanager
def merged_folder(model: Path | str, *, dtype: str) -> Iterator[Path | str]:
    """The model as a folder for software that does not read base.json: itself, or a temporary folder with base and
    adapter merged, weights as `dtype`.
    """
    if base_of(model) is None:
        yield model
        return
    with TemporaryDirectory(prefix="rla-merged-") as name:
        write_merged(Path(model), Path(name), dtype=dtype)
        yield Path(name)


def write_merged(model: Path, folder: Path, *, dtype: str) -> None:
    """Fill an empty folder with the model, base and adapter merged, weights as `dtype`."""
    for file in model.iterdir():
        if file.is_file() and file.name != BASE and not file.name.startswith(".") and not has_weights(file.name):
            shutil.copy(file, folder / file.name)
    load_model(model, dtype=dtype).save_pretrained(folder)


@contextmanager
def loadable(source: str | Path) -> Iterator[None]:
    """Turns the errors of a library that reads untrusted files into a UserError of one line. So does a model that needs
    Python code of its own (`auto_map`), which is never run.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # each library has its own errors, and some are bare KeyErrors
        if isinstance(error, ValueError) and "trust_remote_code" in str(error):
            raise UserError(
                f"{source}: its auto_map names Python code of its own, which rla never runs; use a model that "
                "transformers implements, or convert it to one"
            ) from None
        raise UserError(_hub_message(source, error)) from error


def _config_of(source: str | Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(str(source), trust_remote_code=False)


def _loading_class(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


def load_weights(model: PreTrainedModel, source: str | Path) -> None:
    """Copy the weights of a folder (or hub id) into a live model of the same architecture, dtype and device kept.

    Raises UserError if the weights have another shape; the model's own are then partly overwritten.
    """
    import torch

    folder = folder_of(source)
    parts = parts_of(folder or source)
    files, targets = parts.weights, model.state_dict()
    with torch.no_grad():
        with loadable(source):
            copied = bool(files) and _copy_files(files, targets)
        if not copied:
            _copy(load_model(source).state_dict(), targets, source)
        elif parts.adapter is not None:
            with loadable(source):
                add_adapter(model, parts.adapter)


def _copy_files(files: Sequence[Path], targets: Mapping[str, torch.Tensor]) -> bool:
    """Copy tensor by tensor; False if the files name weights differently from the live model."""
    from safetensors import safe_open

    written = set()
    for file in files:
        with safe_open(file, framework="pt") as content:
            if not set(content.keys()) <= set(targets):
                return False
            for name in content.keys():  # noqa: SIM118 - not a mapping
                _copy({name: content.get_tensor(name)}, targets, file)
                written.add(targets[name].data_ptr())
    return all(target.data_ptr() in written for target in targets.values())  # tied weights are stored once


def _copy(found: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor], source: str | Path) -> None:
    for name, tensor in found.items():
        target = targets.get(name)
        if target is None or target.shape != tensor.shape:
            raise UserError(f"{source}: {name} {list(tensor.shape)} is not a weight of the model that is loaded")
        target.copy_(tensor)


def generation_stops(source: str) -> frozenset[int]:
    """The tokens that end a reply by `generation_config.json` of a model folder or hub id, often more than the
    tokenizer's own. Raises UserError if the file is damaged.
    """
    file = Path(source) / GENERATION if Path(source).is_dir() else _hub_file(source, GENERATION)
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


def _hub_file(source: str, name: str) -> Path | None:
    """A file of a model on the hub, fetched if necessary; None if `source` is not a hub id or lacks the file."""
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


def folder_of(source: str | Path) -> Path | None:
    """The local folder of `source`, or None for a hub id. Raises UserError for a path that does not exist."""
    path = Path(source).expanduser()
    if path.is_dir():
        check_model_folder(path)
        return path
    looks_local = isinstance(source, Path) or str(source).startswith((".", "/", "~")) or str(source).count("/") > 1
    if looks_local:
        raise UserError(f"{path}: no such model folder; run {making_call(path)} or correct the path")
    return None


def _load_local_tokenizer(folder: Path) -> Any:
    """Skips AutoTokenizer, whose imports take 7 s, if the generic class will do."""
    settings = folder / "tokenizer_config.json"
    name = json.loads(settings.read_text()).get("tokenizer_class") if settings.is_file() else None
    if name in GENERIC_TOKENIZERS and (folder / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _hub_message(source: str | Path, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    first = first if isinstance(error, OSError | UserError) else f"{type(error).__name__}: {first}"
    return f"{source}: cannot be loaded ({first}); give a local folder or check the id and the network"


def tokenizer_fingerprint(folder: Path) -> str | None:
    """16 hex digits; None for a folder without tokenizer files and for a hub id, which is never fetched.

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
    settings = _json_object(folder / "tokenizer_config.json")
    backend = _json_object(folder / "tokenizer.json")
    model = backend.get("model") or {}
    files = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in SLOW_TOKENIZER_FILES
        if not backend and (folder / name).is_file()
    }
    if not backend and not files:
        return None
    defining = {
        "files": files,
        "type": model.get("type"),
        "vocabulary": model.get("vocab"),
        "merges": [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or []],
        "normalizer": backend.get("normalizer"),
        "pre_tokenizer": backend.get("pre_tokenizer"),
        "added": sorted(_added_tokens(backend, settings, _json_object(folder / "added_tokens.json")).items()),
        "template": _template(folder, settings),
    }
    return hashlib.sha256(json.dumps(defining, sort_keys=True).encode()).hexdigest()[:16]


def refuse_other_tokenizer(folder: Path, *, recorded: str | None, shard: Path) -> None:
    """Raises UserError if the model in `folder` has a different tokenizer from the one `recorded` in `shard`.

    Nothing is compared if the shard records none, because no model made it, or if `folder` has none.
    """
    found = tokenizer_fingerprint(folder)
    if recorded is not None and found is not None and found != recorded:
        raise UserError(
            f"{shard / MANIFEST}: its token ids were made with another tokenizer ({recorded}) than that of "
            f"{folder} ({found}); train the checkpoint that made the shard, or make the shard again with this one"
        )


def _added_tokens(backend: dict[str, Any], settings: dict[str, Any], listed: dict[str, Any]) -> dict[int, str]:
    """id -> text, from whichever of the three files has them."""
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


def _json_object(file: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise UserError(f"{file}: not valid JSON; save the tokenizer into its folder again") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a JSON object; save the tokenizer into its folder again")
    return content
