"""`rla push` and `rla pull`: copy a run to an object store, and back.

The record of a finished folder (manifest, `files.json`, origin) contains digests of its files, so equal records mean
equal folders. The record is copied last. Until then it is stored as `.<name>.copying`, so that the next call after a
kill continues with the same folder.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from rla.cli.guard import guard
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.store.atomic import write_atomic, write_content

RECORD = re.compile(r"(.+)/(?:_manifest\.parquet|checkpoint\.json|\.origin\.json)")
LOOSE = re.compile(r"config\.yaml|(timings|tensorboard|tracking|report)/.+|((.+/)?[^/]*\d/)?[a-z-]+\.json")
UNFINISHED = re.compile(r"(^|/)\.(?!origin\.json$)|\.(partial|again|tmp)(/|$)")  # hidden: locks, temporary files
LINKED = re.compile(r"init/.+|\d+/(policy|rm)/model/[^/]+")  # to the files of `model.policy`, until a model is trained
RUN_FILE = re.compile(r"config\.yaml|(\d+|init|test|eval|splits|probe)/.+")
URL = re.compile(r"(?!file:|local:)[a-z][a-z0-9+.-]+://[^/]+(/(?!\.{1,2}(/|$))[^/]+)+")
# modules whose errors need not be OSErrors
CLIENTS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "azure")
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace finished folders that differ.")]


def push(run: Path, url: str, overwrite: Overwrite = False) -> None:
    """Copy new and changed parts of a run to an object store. Example: rla push runs/first s3://bucket/first"""
    guard(lambda: _copy_run(run, url.rstrip("/"), pushing=True, overwrite=overwrite))


def pull(url: str, run: Path, overwrite: Overwrite = False) -> None:
    """Copy new and changed parts of a run from an object store. Example: rla pull s3://bucket/first runs/first"""
    guard(lambda: _copy_run(run, url.rstrip("/"), pushing=False, overwrite=overwrite))


def _copy_run(run: Path, url: str, *, pushing: bool, overwrite: bool) -> None:
    """Raises UserError for errors of the URL, the store or the disk, and for refused file names."""
    import fsspec

    from rla.pipeline.plan import existing_run, local_run

    run = existing_run(run) if pushing else local_run(run)
    if not URL.fullmatch(url):
        raise UserError(f"{url}: not the URL of a folder in a bucket, such as s3://bucket/runs/first")
    try:
        store, root = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        here = fsspec.filesystem("dir", path=str(run.absolute()), fs=fsspec.filesystem("file", auto_mkdir=True))
        there = fsspec.filesystem("dir", path=root, fs=store, skip_instance_cache=True)
        transfer(run, *((here, there) if pushing else (there, here)), pushing=pushing, overwrite=overwrite)
    except Exception as error:
        if isinstance(error, OSError | ImportError | ValueError) or type(error).__module__.startswith(CLIENTS):
            remedy = from_checkout("rla[s3]") if isinstance(error, ImportError) and url[:3] == "s3:" else "mend that"
            raise UserError(f"{url}: {type(error).__name__}: {error}; {remedy} and call the same again") from None
        raise


def _sizes_of(place: Any) -> dict[str, int]:
    """Path below a run -> bytes. Raises UserError for names and links that could lead outside. Models may be links."""
    found = place.find("", detail=True)
    odd = [key for key in found if {"", ".", ".."}.intersection(key.split("/")) or "\\" in key or not key.isprintable()]
    odd += [
        key for key, info in found.items() if info.get("islink") and not (LINKED.fullmatch(key) and place.isfile(key))
    ]
    if odd or len({key.casefold() for key in found}) < len(found):
        raise UserError(f"{place.path}: holds {odd or 'names that differ only in case'}, not plain files; remove them")
    return {key: info["size"] for key, info in found.items() if info["type"] == "file" or info.get("islink")}


def transfer(run: Path, source: Any, target: Any, *, pushing: bool, overwrite: bool) -> None:
    """Copy finished folders first, then files without a record. Everything else, such as a stage's unfinished output,
    is left out.
    """
    from rla.store.atomic import lock_outputs
    from rla.store.manifest import STARTED
    from rla.store.shards import is_finished

    def read(place: Any, *keys: str) -> list[bytes]:
        """The contents of files, empty for those that are not there."""
        found = [b""] * len(keys)
        for number, key in enumerate(keys):
            with suppress(FileNotFoundError, NotADirectoryError):
                found[number] = place.cat_file(key)
        return found

    def copy(key: str) -> None:
        here = run / key
        target.put_file(str(here), key) if pushing else write_atomic(here, lambda at: source.get_file(key, str(at)))

    for path in run.rglob(STARTED) if pushing else ():  # a killed call may have left it in a complete shard
        with suppress(UserError):
            is_finished(path.parent)
    sizes, old = _sizes_of(source), _sizes_of(target)
    files = sorted(key for key in sizes if not UNFINISHED.search(key))
    records = {at[1]: key for key in files if (at := RECORD.fullmatch(key)) and f"{at[1]}/{STARTED}" not in sizes}
    inside = {folder: [key for key in files if key.startswith(f"{folder}/")] for folder in records}
    loose = [key for key in files if LOOSE.fullmatch(key)]
    left = {key.rpartition("/")[0] for key in {*files}.difference(loose, records.values(), *inside.values())}
    if not (records or loose):
        raise UserError(f"{source.path}: holds no run")
    if old and not pushing and not any(map(RUN_FILE.fullmatch, old)):
        raise UserError(f"{run}: holds something else than a run; name a new folder")
    with lock_outputs([] if pushing else [run / folder for folder in records]), ThreadPoolExecutor(8) as pool:
        for folder, record in records.items():
            started, listed, pruned = (f"{folder}/{name}" for name in (STARTED, "files.json", "pruned.json"))
            marker = re.sub("([^/]+)$", r".\1.copying", folder)
            said = read(source, record, listed, started)
            if not (whole := record in old and read(target, record, listed, started) == said):
                kept = [key for key in old if key.startswith(f"{folder}/") or key == record]
                begun = marker in old and not {record, started}.intersection(kept)
                if kept and not (begun or overwrite):
                    raise UserError(f"{folder}: another one lies there; --overwrite replaces it")
                if not begun or target.cat_file(marker) != b"".join(said):
                    for key in sorted(kept, key=lambda key: key != record):  # the record first
                        target.rm_file(key)
                        del old[key]
                    target.pipe_file(marker, b"".join(said))
            later = pruned if whole else record  # a complete target keeps its weights
            missing = [key for key in inside[folder] if key != later and old.get(key) != sizes[key]]
            for last in (False, True):  # without its config.json an incomplete model is not mistaken for a complete one
                list(pool.map(copy, [key for key in missing if key.endswith("/config.json") is last]))
            if read(source, record, listed, started) != said:
                raise UserError(f"{folder}: changed while it was copied; call the same again")
            if not whole:
                target.pipe_file(record, said[0]) if pushing else write_content(run / record, said[0])
            for key in filter(target.exists, {marker, *({pruned} - sizes.keys() if whole else ())}):
                target.rm_file(key)
            typer.echo(f"{folder}: {len(missing) + (not whole)} files")
        changed = [key for key in loose if old.get(key) != sizes[key] or read(source, key) != read(target, key)]
        list(pool.map(copy, changed))
    typer.echo(f"{len(changed)} other files; left, because not finished: {', '.join(sorted(left)) or 'nothing'}")
