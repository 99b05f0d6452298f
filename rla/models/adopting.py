"""Model folders that a run starts from: what they were made from, and models that others have made."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.atomic import whole_folder, write_json
from rla.store.removing import remove_made
from rla.store.slices import optional_json

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # what loading needs of a hub repository

WEIGHTS = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "chat_template.jinja")


def origin_record(folder: Path) -> Path:
    """The origin lies beside the folder, which stays an ordinary model folder."""
    return folder.with_name(f"{folder.name}.origin.json")


def whole_model(folder: Path, made_from: dict[str, Any], *, overwrite: bool) -> bool:
    """True where the folder is whole and of this origin; False where it is to be made, and its record then lies there.

    One of another origin is refused, or removed. One without a record is somebody's own: UserError.
    """
    record = origin_record(folder)
    found = optional_json(record)
    if folder.exists():
        if found == made_from:
            return True
        if found is None:
            raise UserError(f"{folder}: not made by rla init-model; move it away, or name it in model.policy")
        if not overwrite:
            raise UserError(f"{folder}: made with other parameters; rerun with --overwrite or choose another folder")
        remove_made(folder, lambda path: len(path.parts) == 1 and is_model_file(folder / path))
    write_json(record, made_from)  # before the folder, so that none is there without it
    return False


def is_model_file(path: Path) -> bool:
    """Whether `rla init-model` may have made it: a link, or a file as transformers names it."""
    return path.is_symlink() or any(fnmatch(path.name, name) for name in (*WEIGHTS, *TOKENIZER))


def adopt(source: str, folder: Path) -> None:
    """A folder of links to the files of a local model folder, or of a hub model that is fetched first."""
    found = Path(source).expanduser()
    if not found.is_dir():
        found = hub_snapshot(source)
    if not (found / "config.json").is_file():
        raise UserError(f"{source}: no config.json in it; give a Hugging Face model folder or a hub id")
    with whole_folder(folder) as partial:
        for file in sorted(entry for entry in found.iterdir() if entry.is_file()):
            (partial / file.name).symlink_to(file.resolve())


def hub_snapshot(source: str) -> Path:
    """The local snapshot of a hub model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"model: {source} is neither a folder nor a hub model that can be fetched "
            f"({str(error).splitlines()[0]}); give a local folder or check the id and the network"
        ) from None
