"""`init-model`: where both models start: small new ones with the environment's own tokenizer, or configured ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rla.envs.registry import setting
from rla.errors import UserError
from rla.pipeline.common import origin, read_tasks
from rla.pipeline.context import StageContext
from rla.pipeline.fallback import pool_of
from rla.store.atomic import write_json
from rla.store.shards import read_json

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # what loading needs of a hub repository
SAMPLE = 64  # tasks that are played for the tokenizer's vocabulary


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes two Hugging Face folders; a configured folder or hub id is linked file by file, not copied."""
    pool = pool_of(ctx, "tasks")
    made_from = origin(ctx, [pool]).as_json()
    summary = {}
    for number, (option, configured) in enumerate(
        (("policy", ctx.config.model.policy), ("rm", ctx.config.model.reward))
    ):
        folder = ctx.path(option)
        if not there(folder, made_from, overwrite=ctx.overwrite):
            if configured == "init":
                make(ctx, folder, pool, seed=ctx.config.seed * 2 + number)
            else:
                adopt(configured, folder)
            write_json(record_of(folder), made_from)
        summary[option] = str(folder)
    return summary


def record_of(folder: Path) -> Path:
    """The origin lies beside the folder, which stays an ordinary model folder."""
    return folder.with_name(f"{folder.name}.origin.json")


def there(folder: Path, made_from: dict[str, Any], *, overwrite: bool) -> bool:
    """True where the folder is whole and of this origin. One of another origin is refused, or removed."""
    record = record_of(folder)
    if folder.exists() and record.exists() and read_json(record) == made_from:
        return True
    if folder.exists() and record.exists() and not overwrite:
        raise UserError(f"{folder}: made with other settings; rerun with --overwrite or choose another folder")
    record.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return False


def make(ctx: StageContext, folder: Path, pool: Path, *, seed: int) -> None:
    from rla.models.init import init_model

    environment = setting(ctx.config.env.name)
    init_model(
        folder,
        texts=list(environment.tokenizer_texts(read_tasks(pool)[:SAMPLE], ctx.config)),
        phrases=environment.tokenizer_phrases(ctx.config),
        exact=environment.exact_text,
        config=ctx.config.model,
        seed=seed,
    )


def adopt(source: str, folder: Path) -> None:
    """A folder of links to the files of a local model folder, or of a hub model that is fetched first."""
    found = Path(source).expanduser()
    if not found.is_dir():
        found = fetch(source)
    if not (found / "config.json").is_file():
        raise UserError(f"{source}: no config.json in it; give a Hugging Face model folder or a hub id")
    partial = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in sorted(entry for entry in found.iterdir() if entry.is_file()):
        (partial / file.name).symlink_to(file.resolve())
    partial.rename(folder)


def fetch(source: str) -> Path:
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
