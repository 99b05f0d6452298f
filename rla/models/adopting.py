"""Model folders that a run starts from: what they were made from, and models that others have made."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.verifying import origin_record, verify_model
from rla.store.atomic import building
from rla.store.digests import KEY, record_files
from rla.store.origin import PARAMETERS, unlike_text
from rla.store.removing import refuse_unlike
from rla.store.replacing import RecordBeside, settle, take_place
from rla.store.slices import CHECKSUM, optional_json, sealed

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # what loading needs of a hub repository

WEIGHTS = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "chat_template.jinja")
PROCESSOR = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
RECORDED = (KEY, CHECKSUM, PARAMETERS)  # keys of a record that say nothing of the origin


def keep_or_make(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None], *, overwrite: bool) -> None:
    """The folder is a whole model of this origin in the end; `make` fills an empty one where it is not.

    Of several calls at once one makes it. A model that is replaced stays until the new one is complete. Raises
    UserError as `whole_model` does.
    """
    if whole_model(folder, made_from, overwrite=overwrite):
        return
    with building(folder) as partial:
        if whole_model(folder, made_from, overwrite=overwrite):  # another call has made it
            return
        make(partial)
        record = sealed({**made_from, KEY: record_files(partial)})
        take_place(partial, folder, made_by_init, beside=RecordBeside(file=origin_record(folder), content=record))


def whole_model(folder: Path, made_from: dict[str, Any], *, overwrite: bool) -> bool:
    """True where the folder is whole, of this origin and as it was written; False where it is to be made.

    One of another origin is refused, or to be replaced. So is one with a file that changed, or whose record is damaged.
    One without a record is somebody's own: UserError.
    """
    settle(folder, made_by_init, record=origin_record(folder))
    if not folder.exists():
        return False
    record = origin_record(folder)
    try:
        found = optional_json(record)
        if found is not None and identity_of(found) == identity_of(made_from):
            verify_model(folder)
            return True
    except UserError:
        if not overwrite:
            raise
        found = {}
    if found is None:
        raise UserError(f"{folder}: not made by rla init-model; move it away, or name it in model.policy")
    if not overwrite:
        unlike = unlike_text(found, made_from)
        raise UserError(f"{folder}: {unlike}; rerun with --overwrite or choose another folder")
    refuse_unlike(folder, made_by_init(folder))
    return False


def identity_of(record: dict[str, Any]) -> dict[str, Any]:
    """What says where a model comes from."""
    return {key: value for key, value in record.items() if key not in RECORDED}


def made_by_init(folder: Path) -> Callable[[Path], bool]:
    """Whether a path below `folder` is one that `rla init-model` may have made."""
    return lambda path: len(path.parts) == 1 and is_model_file(folder / path)


def is_model_file(path: Path) -> bool:
    """Whether `rla init-model` may have made it: a link, or a file as transformers names it."""
    return path.is_symlink() or any(fnmatch(path.name, name) for name in (*WEIGHTS, *TOKENIZER, *PROCESSOR))


def adopt(source: str, folder: Path, *, key: str) -> None:
    """Fill an empty folder with links to the files of a local model folder, or of a hub model that is fetched first.

    Raises UserError that names `key`, the parameter that says `source`.
    """
    found = Path(source).expanduser()
    if not found.is_dir():
        if source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise UserError(f"{key}: {source} is not a folder; give a Hugging Face model folder or a hub id")
        found = hub_snapshot(source, key=key)
    if not (found / "config.json").is_file():
        raise UserError(f"{key}: {source} has no config.json; give a Hugging Face model folder or a hub id")
    for file in sorted(entry for entry in found.iterdir() if entry.is_file() and not entry.name.startswith(".")):
        (folder / file.name).symlink_to(file.resolve())


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
