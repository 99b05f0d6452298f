"""Check that a model's files are unchanged before they are read, and make the model folders that a run starts from.

A checkpoint records size and SHA-256 of each of its files in `files.json`. For a model of `rla init-model`, the origin
record next to its folder does. If such a model consists of links to other files (`model.policy`), the linked files are
compared. A folder without either record is read unchecked, and so is a hub id. For a LoRA checkpoint, adapter and base
are compared as well (`rla.models.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.checkpoint import MANIFEST, OVER, AdapterBase, base_of, has_weights
from rla.models.load import write_merged
from rla.store.digests import FILES, KEY, below, joint_digest, read_records, record_files, verify_recorded
from rla.store.layout import making_call
from rla.store.record import CHECKSUM, PARAMETERS, optional_json, sealed, unlike_text
from rla.store.removing import ADAPTER_PART, MODEL, PARTS, RecordBeside, building, refuse_unlike, settle, take_place

REMAKE = "call `rla init-model --overwrite`"

Share = tuple[int, int]  # (rank, world): each rank digests its share of the files
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # files of a hub repository that loading needs

WEIGHTS = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "chat_template.jinja")
PROCESSOR = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
RECORDED = (KEY, CHECKSUM, PARAMETERS)  # keys of a record that do not describe the origin


def _train_again(checkpoint: Path) -> str:
    """The remedy for a damaged checkpoint."""
    return f"remove its checkpoint and call {making_call(checkpoint)} again, or take another checkpoint"


def origin_record(folder: Path) -> Path:
    """The record of a model of `rla init-model`. It is next to the folder, which remains an ordinary one."""
    return folder.with_name(f"{folder.name}.origin.json")


def checkpoint_around(model: Path | str) -> Path | None:
    """The checkpoint whose `model/` folder this is."""
    folder = Path(model)
    return folder.parent if folder.name == MODEL and (folder.parent / MANIFEST).is_file() else None


def checkpoint_records(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 by path in the checkpoint. Raises UserError if they are missing."""
    found = read_records(checkpoint / FILES)
    if found is None:
        raise UserError(f"{checkpoint / FILES}: missing, so its files cannot be verified; {_train_again(checkpoint)}")
    return found


def model_records(model: Path | str) -> dict[str, dict[str, Any]] | None:
    """Size and SHA-256 by path in the model folder, None if nothing was recorded."""
    checkpoint = checkpoint_around(model)
    if checkpoint is None:
        return read_records(origin_record(Path(model).absolute()))
    return {name: dict(one) for name, one in below(checkpoint_records(checkpoint), MODEL).items()}


def model_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a model folder's files, which are read only if nothing was recorded."""
    return joint_digest(model_records(folder) or record_files(folder))


def verify_model(model: Path | str, *, weights: bool = True, share: Share = (0, 1)) -> None:
    """Raises UserError if a file of a model changed; without `weights`, only configuration and tokenizer count."""
    folder, checkpoint = Path(model), checkpoint_around(model)
    if checkpoint is not None:
        verify_parts(model, (MODEL, *((ADAPTER_PART,) if weights else ())), weights=weights, share=share)
    elif folder.is_dir() and (records := model_records(folder)) is not None:
        verify_recorded(
            folder, records, remedy=REMAKE, wanted=lambda name: weights or not has_weights(name), share=share
        )


def verify_parts(
    model: Path | str, parts: Collection[str] = PARTS, *, weights: bool = True, share: Share = (0, 1)
) -> None:
    """`verify_model` for parts of the checkpoint and the base of its adapter, or for a plain folder."""
    checkpoint, base = checkpoint_around(model), base_of(model)
    if checkpoint is None:
        verify_model(model, weights=weights, share=share)
        return

    def wanted(name: str) -> bool:
        return name.partition("/")[0] in parts and (weights or not has_weights(name))

    verify_recorded(
        checkpoint, checkpoint_records(checkpoint), remedy=_train_again(checkpoint), wanted=wanted, share=share
    )
    if base is not None and weights:
        own = base.files.__contains__
        verify_recorded(base.folder, base.files, remedy=f"{checkpoint} {OVER}", wanted=own, share=share)


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


def keep_or_make(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None], *, overwrite: bool) -> None:
    """Ensure that the folder is a complete model of this origin; `make` fills an empty folder if it is not.

    A model stays until its replacement is complete. Raises UserError as `whole_model` does.
    """
    if whole_model(folder, made_from, overwrite=overwrite):
        return
    with building(folder) as partial:
        make(partial)
        record = sealed({**made_from, KEY: record_files(partial)})
        take_place(partial, folder, _made_by_init, beside=RecordBeside(file=origin_record(folder), content=record))


def whole_model(folder: Path, made_from: dict[str, Any], *, overwrite: bool) -> bool:
    """True if the folder is complete, of this origin and unchanged; False if it has to be made.

    With `overwrite`, a model of another origin, with a changed file or a damaged record is replaced, otherwise refused.
    A folder without a record belongs to somebody else. Raises UserError.
    """
    settle(folder, _made_by_init, record=origin_record(folder))
    if not folder.exists():
        return False
    record = origin_record(folder)
    try:
        found = optional_json(record)
        if found is not None and _origin_of(found) == _origin_of(made_from):
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
    refuse_unlike(folder, _made_by_init(folder))
    return False


def _origin_of(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in RECORDED}


def _made_by_init(folder: Path) -> Callable[[Path], bool]:
    """Tests whether `rla init-model` may have made a path in `folder`."""

    def ours(path: Path) -> bool:
        known = any(fnmatch(path.name, name) for name in (*WEIGHTS, *TOKENIZER, *PROCESSOR))
        return len(path.parts) == 1 and (known or (folder / path).is_symlink())

    return ours


def adopt(source: str, folder: Path, *, key: str) -> None:
    """Fill an empty folder with links to the files of a local model folder, or of a hub model, which is fetched first.
    Adapter and base of a LoRA checkpoint are merged into new files.

    Raises UserError that names `key`, the parameter with the value `source`.
    """
    found = Path(source).expanduser()
    if not found.is_dir():
        if source.startswith((".", "/", "~", "models/")) or source.count("/") > 1:
            raise UserError(
                f"{key}: {source} is not a folder; give a Hugging Face model folder or a hub id, or make the folder "
                "first (docs/guide/install.md)"
            )
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
