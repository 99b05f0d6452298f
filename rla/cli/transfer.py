"""`rla push` and `rla pull`: a run is copied to an object store, and back. `rla merge`: a checkpoint for others.

The record of a finished folder (a shard's manifest, a checkpoint's `files.json`, the origin of a new model) names sizes
and digests of its files, so equal records mean equal folders. It is copied last. Until then `.<name>.copying` lies
beside the folder with the digest of the record, so that a call that was killed goes on with the files that are missing.
"""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rla.cli.guard import guard
from rla.errors import UserError
from rla.store.atomic import write_atomic, write_content

RECORD = re.compile(r"(.+)(?:/_manifest\.parquet|/checkpoint\.json|\.origin\.json)")
LOOSE = re.compile(r"config\.yaml|(timings|tensorboard|tracking|report)/.+|((.+/)?[^/]*\d/)?[a-z-]+\.json")
UNFINISHED = re.compile(r"(^|/)\.|\.(partial|again|tmp)(/|$)")  # and hidden: locks, temporary files
LINKED = re.compile(r"init/.+|\d+/(policy|rm)/model/[^/]+")  # to the files of `model.policy`, until a model is trained
RUN_FILE = re.compile(r"config\.yaml|(\d+|init|test|eval|splits|probe)/.+")
URL = re.compile(r"(?!file:|local:)[a-z][a-z0-9+.-]+://[^/]+(/(?!\.{1,2}(/|$))[^/]+)+")
CLIENTS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "azure")  # whose errors need not be OSErrors
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace finished folders that differ.")]


def push(run: Path, url: str, overwrite: Overwrite = False) -> None:
    """Copy what is missing or differs of a run to an object store. Example: rla push runs/first s3://bucket/first"""
    from rla.pipeline.params_files import existing_run

    guard(lambda: copy_run(existing_run(run), url.rstrip("/"), pushing=True, overwrite=overwrite))


def pull(url: str, run: Path, overwrite: Overwrite = False) -> None:
    """Copy what is missing or differs of a run from an object store. Example: rla pull s3://bucket/first runs/first"""
    from rla.pipeline.params_files import local_run

    guard(lambda: copy_run(local_run(run), url.rstrip("/"), pushing=False, overwrite=overwrite))


def merge(
    checkpoint: Path,
    folder: Path,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Of the weights.")] = "bfloat16",
) -> None:
    """Write a checkpoint as one model folder that others read, an adapter and its base added up.

    Example: rla merge runs/first/12/policy merged
    """

    def call() -> None:
        from rla.models.checkpoint import model_folder
        from rla.models.load import write_merged
        from rla.models.verifying import verify_model
        from rla.store.atomic import whole_folder

        model = model_folder(checkpoint)
        verify_model(model)
        with whole_folder(folder) as partial:
            write_merged(model, partial, dtype=dtype)

    guard(call)


def copy_run(run: Path, url: str, *, pushing: bool, overwrite: bool) -> None:
    """Raises UserError for whatever the URL, the store, the disk or the names of files refuse."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    if not URL.fullmatch(url):
        raise UserError(f"{url}: not the URL of a folder in a bucket, such as s3://bucket/runs/first")
    try:
        files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url}: {error}; for s3:// install rla[s3]") from None
    here = DirFileSystem(str(run.absolute()), LocalFileSystem(), skip_instance_cache=True)
    there = DirFileSystem(root, files, skip_instance_cache=True)
    try:
        transfer(run, *((here, there) if pushing else (there, here)), pushing=pushing, overwrite=overwrite)
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        raise UserError(f"{url}: {type(error).__name__}: {error}; mend that and call the same again") from None


def sizes_of(place: Any) -> dict[str, int]:
    """Path below a run -> bytes. UserError for names and links that could lead out of it; only files of models may be
    links.
    """
    found = place.find("", detail=True)
    odd = [key for key in found if {"", ".", ".."}.intersection(key.split("/")) or "\\" in key or not key.isprintable()]
    for key, info in found.items():
        if info.get("islink") and not (LINKED.fullmatch(key) and place.isfile(key)):
            odd.append(key)
    if odd or len({key.casefold() for key in found}) < len(found):
        raise UserError(f"{place.path}: holds {odd or 'names that differ in case alone'}, no plain files; remove them")
    return {key: info["size"] for key, info in found.items() if info["type"] == "file" or info.get("islink")}


def transfer(run: Path, source: Any, target: Any, *, pushing: bool, overwrite: bool) -> None:
    """Finished folders first, then files that have no record; all else, such as what a stage still writes, is left."""
    from rla.store.call_lock import lock_outputs
    from rla.store.slices import STARTED

    sizes, old = sizes_of(source), sizes_of(target)

    def read(place: Any, key: str) -> bytes:
        return bytes(place.cat_file(key)) if place.exists(key) else b""

    def write(key: str, content: bytes) -> None:
        target.pipe_file(key, content) if pushing else write_content(run / key, content)

    def copy(key: str) -> None:
        if pushing:
            target.put_file(str(run / key), key)
        else:
            write_atomic(run / key, lambda place: source.get_file(key, str(place)))

    files = [key for key in sorted(sizes) if not UNFINISHED.search(key)]
    found = {match[1]: key for key in files if (match := RECORD.fullmatch(key))}
    records = {folder: record for folder, record in found.items() if f"{folder}/{STARTED}" not in sizes}
    inside = {folder: [key for key in files if key.startswith(f"{folder}/")] for folder in records}
    loose = [key for key in files if LOOSE.fullmatch(key)]
    left = {key.rpartition("/")[0] for key in {*files}.difference(loose, records.values(), *inside.values())}
    if not (records or loose):
        raise UserError(f"{source.path}: holds no run")
    if old and not pushing and not any(map(RUN_FILE.fullmatch, old)):
        raise UserError(f"{run}: holds something else than a run; name a new folder")
    with lock_outputs([] if pushing else [run / folder for folder in records]), ThreadPoolExecutor(8) as pool:
        for folder, record in records.items():
            parent, _, name = folder.rpartition("/")
            marker, pruned = f"{parent}/.{name}.copying", f"{folder}/pruned.json"
            beside = f"{folder}/{'files.json' if record.endswith('checkpoint.json') else STARTED}"
            said = read(source, record), read(source, beside)
            kept = [key for key in old if key.startswith(f"{folder}/") or key == record]
            whole = record in kept and (read(target, record), read(target, beside)) == said
            digest = hashlib.sha256(b"".join(said)).hexdigest().encode()
            if not whole:
                begun = marker in old and record not in kept and f"{folder}/{STARTED}" not in kept
                if kept and not begun and not overwrite:
                    raise UserError(f"{folder}: another one lies there; --overwrite replaces it")
                if not begun or read(target, marker) != digest:
                    for key in sorted(kept, key=lambda key: key != record):
                        target.rm_file(key)
                    write(marker, digest)
                    kept = []
            missing = [key for key in inside[folder] if key != record and (key not in kept or old[key] != sizes[key])]
            missing = [key for key in missing if key != pruned or not whole]
            for last in (False, True):  # without its config.json a new model is not taken for one
                list(pool.map(copy, [key for key in missing if key.endswith("/config.json") is last]))
            if (read(source, record), read(source, beside)) != said:
                raise UserError(f"{folder}: changed while it was copied; call the same again")
            if not whole:
                write(record, said[0])
            for key in (marker, *([pruned] if whole and pruned not in sizes else [])):
                if target.exists(key):
                    target.rm_file(key)
            typer.echo(f"{folder}: {len(missing) + (not whole)} files")
        changed = [key for key in loose if old.get(key) != sizes[key] or read(source, key) != read(target, key)]
        list(pool.map(copy, changed))
    typer.echo(f"{len(changed)} other files; left, because not finished: {', '.join(sorted(left)) or 'nothing'}")
