"""Whether the files of a model are those that were written: whoever reads some compares them first.

A checkpoint names size and SHA-256 of each of its files in `files.json`. For a model that `rla init-model` made, the
origin record beside its folder does. Where such a model consists of links to files elsewhere (`model.policy`), the
files that the links lead to are compared. A folder without either record is read as it is, and so is a hub id.

Of a LoRA checkpoint adapter and base are compared, too: they are the model (`rla.models.adapters`).

The second half makes the model folders that a run starts from (`keep_or_make`), or adopts those of others (`adopt`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.adapters import OVER, AdapterBase, base_of
from rla.models.checkpoint import MANIFEST, is_companion
from rla.models.load import write_merged
from rla.store.digests import FILES, KEY, below, joint_digest, read_records, record_files, verify_recorded
from rla.store.layout import making_call
from rla.store.record import CHECKSUM, PARAMETERS, optional_json, sealed, unlike_text
from rla.store.removing import ADAPTER_PART, MODEL, PARTS, RecordBeside, building, refuse_unlike, settle, take_place

ANEW = "call `rla init-model --overwrite`"

Share = tuple[int, int]  # rank and world: each rank digests its part of the files
SMOLLM2 = "models/smollm2-135m"  # a folder that the Makefile makes
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # what loading needs of a hub repository

WEIGHTS = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "chat_template.jinja")
PROCESSOR = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
RECORDED = (KEY, CHECKSUM, PARAMETERS)  # keys of a record that say nothing of the origin


def anew(checkpoint: Path) -> str:
    return f"remove its checkpoint and call {making_call(checkpoint)} again, or take another checkpoint"


def origin_record(folder: Path) -> Path:
    """What a model of `rla init-model` was made from. It lies beside the folder, so that this stays an ordinary one."""
    return folder.with_name(f"{folder.name}.origin.json")


def checkpoint_around(model: Path | str) -> Path | None:
    """The checkpoint whose `model/` this is."""
    folder = Path(model)
    return folder.parent if folder.name == MODEL and (folder.parent / MANIFEST).is_file() else None


def checkpoint_records(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """By path below the checkpoint. Raises UserError if they are lost."""
    found = read_records(checkpoint / FILES)
    if found is None:
        raise UserError(f"{checkpoint / FILES}: missing, so its files cannot be verified; {anew(checkpoint)}")
    return found


def model_records(model: Path | str) -> dict[str, dict[str, Any]] | None:
    """By path below the model folder; None where nothing was recorded."""
    checkpoint = checkpoint_around(model)
    if checkpoint is None:
        return read_records(origin_record(Path(model).absolute()))
    return {name: dict(one) for name, one in below(checkpoint_records(checkpoint), MODEL).items()}


def model_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a model folder's files, which are read where nothing was recorded of them."""
    return joint_digest(model_records(folder) or record_files(folder))


def named_content(model: Path | str) -> str:
    """A model folder and what is recorded of it and of its checkpoint: after a change of either it is another text."""
    checkpoint = checkpoint_around(model)
    records = model_records(model) if checkpoint is None else checkpoint_records(checkpoint)
    return f"{Path(model).resolve()} {joint_digest(records or {})}"


def verify_model(model: Path | str, *, weights: bool = True, share: Share = (0, 1)) -> None:
    """UserError where a file of a model changed; without `weights`: of configuration and tokenizer alone."""
    folder, checkpoint = Path(model), checkpoint_around(model)
    if checkpoint is not None:
        verify_parts(model, (MODEL, *((ADAPTER_PART,) if weights else ())), weights=weights, share=share)
    elif folder.is_dir() and (records := model_records(folder)) is not None:
        wanted = always if weights else is_companion
        verify_recorded(folder, records, remedy=ANEW, wanted=wanted, share=share)


def verify_parts(
    model: Path | str, parts: Collection[str] = PARTS, *, weights: bool = True, share: Share = (0, 1)
) -> None:
    """The same of parts of the checkpoint, and of what its adapter lies over; of a plain folder as `verify_model`."""
    checkpoint, base = checkpoint_around(model), base_of(model)
    if checkpoint is None:
        verify_model(model, weights=weights, share=share)
        return

    def wanted(name: str) -> bool:
        return name.partition("/")[0] in parts and (weights or is_companion(name))

    verify_recorded(checkpoint, checkpoint_records(checkpoint), remedy=anew(checkpoint), wanted=wanted, share=share)
    if base is not None and weights:
        own = base.files.__contains__
        verify_recorded(base.folder, base.files, remedy=f"{checkpoint} {OVER}", wanted=own, share=share)


def base_under(model: Path | str) -> AdapterBase:
    """What an adapter that is trained from here on lies over: the base that the model has, or else its own weights.

    Reads those, unless it was recorded what they are.
    """
    base = base_of(model)
    if base is not None:
        return base
    folder = Path(model) if Path(model).is_dir() else hub_snapshot(str(model), key="the base of an adapter")
    records = model_records(folder) or record_files(folder)
    return AdapterBase(folder=folder, files={name: one for name, one in records.items() if not is_companion(name)})


def always(name: str) -> bool:
    return True


def keep_or_make(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None], *, overwrite: bool) -> None:
    """The folder is a whole model of this origin in the end; `make` fills an empty one where it is not.

    A model that is replaced stays until the new one is complete. Raises UserError as `whole_model` does.
    """
    if whole_model(folder, made_from, overwrite=overwrite):
        return
    with building(folder) as partial:
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

    def ours(path: Path) -> bool:
        """A link, or a file as transformers names it."""
        known = any(fnmatch(path.name, name) for name in (*WEIGHTS, *TOKENIZER, *PROCESSOR))
        return len(path.parts) == 1 and (known or (folder / path).is_symlink())

    return ours


def adopt(source: str, folder: Path, *, key: str) -> None:
    """Fill an empty folder with links to the files of a local model folder, or of a hub model that is fetched first. A
    LoRA checkpoint's is written anew, adapter and base as one.

    Raises UserError that names `key`, the parameter that says `source`.
    """
    found = Path(source).expanduser()
    if source == SMOLLM2 and not found.is_dir():
        raise UserError(f"{key}: {source} is not there yet; `make {source}` makes it (docs/guide/install.md)")
    if not found.is_dir():
        if source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise UserError(f"{key}: {source} is not a folder; give a Hugging Face model folder or a hub id")
        found = hub_snapshot(source, key=key)
    if not (found / "config.json").is_file():
        raise UserError(f"{key}: {source} has no config.json; give a Hugging Face model folder or a hub id")
    if base_of(found) is not None:
        verify_model(found)
        write_merged(found, folder, dtype="float32")
        return
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
