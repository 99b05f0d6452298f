"""Load a causal language model or a tokenizer from a Hugging Face folder, or from the hub by its id.

A missing file is a UserError that names the folder and the remedy, in place of a library's stack trace.

A tokenizer's fingerprint tells which tokenizer made some token ids. It covers vocabulary, merges, normalizer,
pre-tokenizer, added tokens and chat template, and ignores everything that changes when a tokenizer is merely saved
again: the order of keys, the notation of merges, which file holds template or added tokens, padding and truncation.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from rla.errors import UserError
from rla.models.checkpoint import (
    BASE,
    AdapterBase,
    add_adapter,
    base_of,
    check_model_folder,
    has_weights,
    model_records,
    parts_of,
)
from rla.store.layout import making_call
from rla.store.manifest import MANIFEST, record_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
WEIGHT_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*")
GENERATION = "generation_config.json"
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # files of a hub repository that loading needs
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
GENERIC_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Raises UserError if there is none or it has no chat template."""
    folder = folder_of(source)
    if folder is not None and not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise UserError(f"{folder}: no tokenizer files; save the tokenizer beside the weights")
    with loadable(source):
        settings: Any = {} if folder is None else model_json(folder, "tokenizer_config.json")
        generic = settings.get("tokenizer_class") in GENERIC_TOKENIZERS
        if folder is not None and generic and (folder / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast as loads  # the imports of AutoTokenizer take 7 s
        else:
            from transformers import AutoTokenizer as loads
        tokenizer: Any = loads.from_pretrained(str(folder or source), trust_remote_code=False)
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
        name, config = str(folder or source), _config_of(folder or source)
        loads, precision = _loading_class(config), getattr(torch, dtype)
        model: Any = loads.from_pretrained(name, config=config, dtype=precision, trust_remote_code=False)
    return cast("PreTrainedModel", model.to(device).eval())


def hollow_model(folder: Path | str) -> PreTrainedModel:
    """The model of a folder or hub id in evaluation mode, its fp32 parameters on the meta device, its buffers real."""
    import torch
    from accelerate import init_empty_weights

    with loadable(folder), init_empty_weights(include_buffers=False):
        config = _config_of(folder)
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
        write_merged(model, Path(name), dtype=dtype)
        yield Path(name)


def write_merged(model: Path | str, folder: Path, *, dtype: str) -> None:
    """Fill a folder, which may not exist yet, with the model, base and adapter merged, weights as `dtype`."""
    copy_without_weights(model, folder)
    load_model(model, dtype=dtype).save_pretrained(folder)


def copy_without_weights(model: Path | str, folder: Path) -> None:
    """Copy tokenizer, configuration and templates to a folder, byte for byte if `model` is not a hub id."""
    folder.mkdir(exist_ok=True)
    if not Path(model).is_dir():
        load_tokenizer(model).save_pretrained(folder)
        return
    for file in Path(model).iterdir():
        if file.is_file() and not file.name.startswith(".") and not has_weights(file.name) and file.name != BASE:
            shutil.copy(file, folder / file.name)


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
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        first = first if isinstance(error, OSError) else f"{type(error).__name__}: {first}"
        raise UserError(
            f"{source}: cannot be loaded ({first}); give a local folder or check the id and the network"
        ) from error


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

    targets = model.state_dict()
    with torch.no_grad():
        for name, tensor in load_model(source, dtype=str(model.dtype).removeprefix("torch.")).state_dict().items():
            target = targets.get(name)
            if target is None or target.shape != tensor.shape:
                raise UserError(f"{source}: {name} {list(tensor.shape)} is not a weight of the model that is loaded")
            target.copy_(tensor)


def generation_stops(source: str) -> frozenset[int]:
    """The tokens that end a reply by `generation_config.json` of a model folder or hub id, often more than the
    tokenizer's own. Raises UserError if the file is damaged.
    """
    if not Path(source).is_dir() and not HUB_ID.fullmatch(source):
        return frozenset()
    found = model_json(source, GENERATION).get("eos_token_id")
    stops = found if isinstance(found, list) else [] if found is None else [found]
    if all(type(one) is int and one >= 0 for one in stops):
        return frozenset(stops)
    raise UserError(
        f"{source}/{GENERATION}: eos_token_id must be a token id or a list of them; fetch or write the file again"
    )


def hub_snapshot(source: str, *, key: str) -> Path:
    """The local snapshot of a hub model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"{key}: {source} is neither a folder nor a hub model that can be fetched "
            f"({str(error).splitlines()[0]}); give a local folder or check the id and the network"
        ) from None


def base_under(model: Path | str) -> AdapterBase:
    """The base of an adapter that is trained from this model: the model's base, or else its own weights, which are
    read only if nothing was recorded of them.
    """
    base = base_of(model)
    if base is not None:
        return base
    folder = Path(model) if Path(model).is_dir() else hub_snapshot(str(model), key="the base of an adapter")
    records = model_records(folder) or record_files(folder)
    return AdapterBase(folder=folder, files={name: one for name, one in records.items() if has_weights(name)})


def model_json(source: str | Path, name: str) -> dict[str, Any]:
    """A JSON file of a model folder or hub id, which is fetched if necessary; empty if there is none.

    Raises UserError if it is not a JSON object.
    """
    folder = folder_of(source)
    if folder is None:
        from transformers.utils import cached_file

        optional = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        fetched = cached_file(str(source), name, **optional)
    file = folder / name if folder is not None else None if fetched is None else Path(fetched)
    if file is None or not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise UserError(f"{file}: not valid JSON; fetch or write the file again") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a JSON object; fetch or write the file again")
    return content


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


def tokenizer_fingerprint(folder: Path) -> str | None:
    """16 hex digits; None for a folder without tokenizer.json and for a hub id, which is never fetched.

    Raises UserError for a file that is not a tokenizer's.
    """
    if not (folder / "tokenizer.json").is_file():
        return None
    backend, settings = (model_json(folder, name) for name in ("tokenizer.json", "tokenizer_config.json"))
    written = folder / "chat_template.jinja"
    template = written.read_text(encoding="utf-8") if written.is_file() else settings.get("chat_template")
    try:
        if isinstance(template, list):
            template = next((one["template"] for one in template if one["name"] == "default"), None)
        model, settled = backend["model"], settings.get("added_tokens_decoder", {}).items()
        added = {int(index): str(token["content"]) for index, token in settled}
        added |= {int(token["id"]): str(token["content"]) for token in backend.get("added_tokens") or []}
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or []]
        defining = {
            **{key: model.get(key) for key in ("type", "vocab")},
            "merges": merges,
            **{key: backend.get(key) for key in ("normalizer", "pre_tokenizer")},
            "added": sorted(added.items()),
            "template": None if template is None else str(template).removesuffix("\n"),  # Jinja drops it
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder}: its tokenizer's files are damaged ({type(error).__name__}: {error}); save the "
            "tokenizer into its folder again"
        ) from None
    return hashlib.sha256(json.dumps(defining, sort_keys=True).encode()).hexdigest()[:16]


def refuse_other_tokenizer(folder: Path, *, recorded: str | None, shard: Path) -> None:
    """Raises UserError if the model in `folder` has a different tokenizer from the one `recorded` in `shard`.

    Nothing is compared if the shard records none, because no model made it, or if `folder` has none.
    """
    found = tokenizer_fingerprint(folder)
    if recorded is not None and found is not None and found != recorded:
        raise UserError(
            f"{shard / MANIFEST}: its token ids were made with another tokenizer ({recorded}) than "
            f"{folder} has ({found}); train the checkpoint that made the shard, or make the shard again with this one"
        )
