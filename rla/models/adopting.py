"""Model folders that a run starts from: what they were made from, and models that others have made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.slices import read_json

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # what loading needs of a hub repository


def origin_record(folder: Path) -> Path:
    """The origin lies beside the folder, which stays an ordinary model folder."""
    return folder.with_name(f"{folder.name}.origin.json")


def whole_model(folder: Path, made_from: dict[str, Any], *, overwrite: bool) -> bool:
    """True where the folder is whole and of this origin. One of another origin is refused, or removed."""
    record = origin_record(folder)
    if folder.exists() and record.exists() and read_json(record) == made_from:
        return True
    if folder.exists() and record.exists() and not overwrite:
        raise UserError(f"{folder}: made with other parameters; rerun with --overwrite or choose another folder")
    record.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return False


def adopt(source: str, folder: Path) -> None:
    """A folder of links to the files of a local model folder, or of a hub model that is fetched first."""
    found = Path(source).expanduser()
    if not found.is_dir():
        found = hub_snapshot(source)
    if not (found / "config.json").is_file():
        raise UserError(f"{source}: no config.json in it; give a Hugging Face model folder or a hub id")
    partial = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in sorted(entry for entry in found.iterdir() if entry.is_file()):
        (partial / file.name).symlink_to(file.resolve())
    partial.rename(folder)


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
