"""Shard folders: `part-*.parquet` and, last of all, `manifest.json`.

A folder passes through three states. *Started*: `started.json` names the digests of config and inputs that its parts
belong to. *Growing*: parts appear, each written aside and renamed. *Complete*: `manifest.json` lists the parts with
their sizes. A rerun with the same digests keeps every part that is there; with others it is refused.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla import __version__
from rla.atomic import write_atomic, write_json
from rla.errors import UserError
from rla.schema import arrow_schema, load_schema, to_table

MANIFEST = "manifest.json"
STARTED = "started.json"
STREAMED = 32  # rows that a stream decodes at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a shard is made from: equal origins make equal shards."""

    config: str
    inputs: Mapping[str, str]
    seed: int

    def as_json(self) -> dict[str, Any]:
        return {"config_digest": self.config, "input_digests": dict(self.inputs), "seed": self.seed}


class ShardWriter:
    """Writes one shard folder. `done` holds the indices of parts that an earlier, interrupted call has finished.

    A folder of another origin is refused, or replaced with `overwrite`; one of the same origin is always carried on.
    """

    def __init__(self, folder: Path, kind: str, origin: Origin, *, overwrite: bool = False) -> None:
        self.folder, self.kind, self.origin = folder, kind, origin
        self.complete = False
        self._open(overwrite)
        self.done = {int(path.stem.split("-")[1]) for path in sorted(folder.glob("part-*.parquet"))}

    def _open(self, overwrite: bool) -> None:
        header = {
            "kind": self.kind,
            "schema_version": load_schema(self.kind)["version"],
            **self.origin.as_json(),
        }
        for name in (MANIFEST, STARTED):
            path = self.folder / name
            if not path.exists():
                continue
            found = read_json(path)
            differing = [key for key in header if found.get(key) != header[key]]
            if differing and overwrite:
                shutil.rmtree(self.folder)
                break
            if differing:
                raise UserError(
                    f"{self.folder}: made with another {', '.join(differing)}; "
                    "rerun with --overwrite or choose another folder"
                )
            self.complete = name == MANIFEST
            if self.complete and damaged(self.folder, found, tolerate=overwrite):
                shutil.rmtree(self.folder)
                self.complete = False
                break
            return
        if overwrite:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.folder.exists() and any(self.folder.glob("*.parquet")):
            raise UserError(f"{self.folder}: holds Parquet files of unknown origin; use --overwrite or another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / STARTED, header)

    def write(self, index: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write part `index`; it is whole or absent. Rows are checked against the kind's schema."""
        table = to_table(self.kind, list(rows))
        path = self.folder / f"part-{index:05d}.parquet"
        write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
        self.done.add(index)

    def finish(self, counts: Mapping[str, Any] | None = None, *, tokenizer: str | None = None) -> dict[str, Any]:
        """Write the manifest; from here on the shard is complete. `tokenizer`: the fingerprint of the one that made
        the shard's token ids.
        """
        parts = []
        for path in sorted(self.folder.glob("part-*.parquet")):
            parts.append({"name": path.name, "rows": pq.read_metadata(path).num_rows, "bytes": path.stat().st_size})
        manifest = {
            "kind": self.kind,
            "schema_version": load_schema(self.kind)["version"],
            **self.origin.as_json(),
            "rows": sum(part["rows"] for part in parts),
            "counts": dict(counts or {}),
            **({} if tokenizer is None else {"tokenizer": tokenizer}),
            "parts": parts,
            "versions": {"rla": __version__, "pyarrow": pa.__version__},
        }
        write_json(self.folder / MANIFEST, manifest)
        (self.folder / STARTED).unlink(missing_ok=True)
        self.complete = True
        return manifest


def write_shard(
    folder: Path,
    kind: str,
    rows: Sequence[dict[str, Any]],
    origin: Origin,
    *,
    counts: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """A shard of a single part. A complete one of the same origin is left as it is."""
    writer = ShardWriter(folder, kind, origin, overwrite=overwrite)
    if writer.complete:
        return read_json(folder / MANIFEST)
    writer.write(0, rows)
    return writer.finish(counts)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from disk; UserError names the file."""
    try:
        data = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError(f"{path}: not valid JSON; remove its folder and rerun the stage that made it") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object; rerun the stage that made it")
    return data


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a complete shard, of the right kind and schema version."""
    path = folder / MANIFEST
    if not path.exists():
        state = "is incomplete (no manifest.json)" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}; run the stage that makes it, again if it was interrupted")
    manifest = read_json(path)
    if kind is not None:
        if manifest.get("kind") != kind:
            raise UserError(f"{path}: a shard of kind {manifest.get('kind')!r}; expected {kind!r}")
        version = load_schema(kind)["version"]
        if manifest.get("schema_version") != version:
            raise UserError(
                f"{path}: schema version {manifest.get('schema_version')}, this program reads version {version}; "
                "rerun the stage that made it"
            )
    return manifest


def verify_parts(folder: Path, manifest: Mapping[str, Any]) -> None:
    """The parts on disk are those of the manifest, with their sizes."""
    listed = {part["name"]: part["bytes"] for part in manifest["parts"]}
    found = {path.name: path.stat().st_size for path in folder.glob("part-*.parquet")}
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            raise UserError(
                f"{folder / name}: {found.get(name, 'no')} bytes, manifest.json says {listed.get(name, 'nothing')}; "
                "the shard was changed or truncated: rerun the stage that made it with --overwrite"
            )


def damaged(folder: Path, manifest: Mapping[str, Any], *, tolerate: bool) -> bool:
    """Whether parts are missing, changed or unreadable. Such a shard is an error unless it may be made again."""
    try:
        verify_parts(folder, manifest)
        for part in manifest["parts"]:
            read_footer(folder / part["name"])
    except UserError:
        if not tolerate:
            raise
        return True
    return False


def read_footer(path: Path) -> None:
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({error}); rerun its stage with --overwrite") from None


def read_part(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """One Parquet file; columns in the order asked for. `pq.read_table` would import pandas for it, a second, as the
    first array that is made of Python values does.
    """
    with pq.ParquetFile(path) as file:
        table = file.read(columns=list(columns) if columns else None)
    return table.select(list(columns)) if columns else table


def read_table(folder: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a complete shard, parts in order."""
    manifest = read_manifest(folder, kind)
    verify_parts(folder, manifest)
    tables = []
    for part in manifest["parts"]:
        path = folder / part["name"]
        try:
            tables.append(read_part(path, columns))
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(
                f"{path}: not a readable Parquet file ({error}); rerun its stage with --overwrite"
            ) from None
    schema = arrow_schema(kind)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_rows(folder: Path, kind: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """`read_table` as plain dictionaries."""
    rows: list[dict[str, Any]] = read_table(folder, kind, columns).to_pylist()
    return rows


def stream_rows(
    folder: Path, kind: str, columns: Sequence[str], *, keys: Collection[Any] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a complete shard as plain dictionaries, one after the other: a few of a part are in memory at a time.

    With `keys` only rows whose first column is among them. Damage is found before the first row.
    """
    manifest = read_manifest(folder, kind)
    verify_parts(folder, manifest)
    for part in manifest["parts"]:
        read_footer(folder / part["name"])
    for part in manifest["parts"]:
        with pq.ParquetFile(folder / part["name"]) as file:
            for batch in file.iter_batches(batch_size=STREAMED, columns=list(columns)):
                found = batch.column(columns[0]).to_pylist()
                for index, key in enumerate(found):
                    if keys is None or key in keys:
                        yield batch.slice(index, 1).to_pylist()[0]


def digest(path: Path) -> str:
    """16 hex digits that identify an artifact: its manifest, checkpoint record, or the file itself."""
    for name in (MANIFEST, "checkpoint.json"):
        if (path / name).is_file():
            return hashlib.sha256((path / name).read_bytes()).hexdigest()[:16]
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if (path / "config.json").is_file():
        return folder_digest(path)
    raise UserError(
        f"{path}: neither a complete shard nor a checkpoint; run the stage that makes it, again if it was interrupted"
    )


SAMPLE = 1 << 20


def folder_digest(folder: Path) -> str:
    """Of a plain model folder: names, sizes and contents; of a file beyond 64 MiB its time, first and last MiB."""
    found = hashlib.sha256()
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file()):
        size = path.stat().st_size
        found.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            if size <= 64 * SAMPLE:
                found.update(file.read())
            else:
                found.update(str(path.stat().st_mtime_ns).encode() + file.read(SAMPLE))
                file.seek(-SAMPLE, 2)
                found.update(file.read())
    return found.hexdigest()[:16]
