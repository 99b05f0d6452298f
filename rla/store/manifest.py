"""Manifests and other records: JSON files that name the kind of the data next to them, its files and its origin.

The records of a shard folder lie in Parquet files without rows, so that programs that read Parquet open the folder:

    PAR1 newline | JSON text | footer | length of the footer, 4 bytes | PAR1

The footer names the columns of the shard's kind. Polars refuses a folder that holds a file of another format, whatever
its name; `datasets` takes the format that most files have. pandas and pyarrow skip names that begin with an underscore.

A slice that has its parts writes `_manifest-<i>-of-<n>.parquet` (pictures have none), and the last one also
`_manifest.parquet`, the same as an undivided call does. Slices may share a folder, or fill folders whose files are then
put into one, because parts carry the index of their group.

`<run>/config.yaml` is the record of a run: every parameter with its value, defaults included, as the last call resolved
them. It may serve as a params file: `--params <run>/config.yaml` repeats the run.

`files.json` in a checkpoint holds size and SHA-256 of its files, and its own checksum:

    {"files": {"model/config.json": {"bytes": 741, "sha256": "..."}, ...}, "checksum": "..."}

Anyone may have written a record. A named pipe would be read forever and a huge file would take all memory, so a record
is a regular file of bounded size.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rla import __version__
from rla.config.load import read_yaml
from rla.config.schema import differences_text, parameter_differences, shown_value
from rla.errors import UserError
from rla.store.atomic import SHOWN, Slice, json_text, slices, write_content, write_json, write_text
from rla.store.layout import making_call, rerun
from rla.text import counted

MANIFEST = "_manifest.parquet"
STARTED = "_started.parquet"
CHECKSUM = "checksum"  # over the other keys of a record
ORIGIN = ("config_digest", "input_digests", "seed")  # keys of a record, by which outputs are compared
PARAMETERS = "parameters"  # that the `config_digest` of a record covers
_LARGEST_RECORD = 1 << 28  # bytes; a manifest takes some hundred bytes for each part
MIB = 1 << 20
_MAGIC, _BEGIN, _LENGTH = b"PAR1", b"PAR1\n", 4
PART = re.compile(r"part-(\d{5,})\.parquet")  # a plain name, so that no manifest leads out of its folder
_COUNTED = ("episodes", "steps", "invalid_actions", "truncated", "context_stops", "env_errors")  # used in arithmetic


def refuse_irregular(path: Path, most: int | None = None) -> int:
    """The size of a regular file in bytes. UserError for a pipe, a device, a socket, and for more than `most` bytes.

    Raises OSError if the file does not exist. A folder is left to the function that opens it.
    """
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UserError(f"{path}: a pipe, a socket or a device, not a file; move it away")
    if most is not None and found.st_size > most:
        raise UserError(
            f"{path}: {found.st_size / MIB:,.0f} MiB, and at most {most / MIB:,.0f} MiB are read of such a file; "
            "replace it"
        )
    return found.st_size


def read_regular(path: Path) -> bytes:
    """The content of a regular file of at most `_LARGEST_RECORD` bytes. Raises as `refuse_irregular` does."""
    refuse_irregular(path, _LARGEST_RECORD)
    # Without waiting: a pipe may have taken the name since.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(_LARGEST_RECORD + 1)
    if len(content) > _LARGEST_RECORD:
        raise UserError(f"{path}: grew beyond {_LARGEST_RECORD / MIB:,.0f} MiB while it was read; replace it")
    return content


def record_text(content: bytes) -> bytes:
    """The JSON text in the Parquet file of a record; any other content is returned as it is."""
    if not content.startswith(_BEGIN):
        return content
    tail = _LENGTH + len(_MAGIC)
    return content[len(_BEGIN) : -tail - int.from_bytes(content[-tail : -len(_MAGIC)], "little")]


def write_record(path: Path, kind: str, data: Mapping[str, Any]) -> None:
    """Write a record of a shard of this kind atomically, with its checksum."""
    write_content(path, _BEGIN + json_text(sealed(data)).encode() + _footer(kind))


@cache
def _footer(kind: str) -> bytes:
    import pyarrow.parquet as pq

    from rla.store.schema import arrow_schema

    empty = io.BytesIO()
    pq.ParquetWriter(empty, arrow_schema(kind)).close()  # no row group: `datasets` fails on one without rows
    return empty.getvalue().removeprefix(_MAGIC)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from disk, in a Parquet file or not. UserError names the file if it is damaged."""
    try:
        data = json.loads(record_text(read_regular(path)))
    except (ValueError, RecursionError):  # not JSON, not UTF-8, a number too long, nested too deeply
        raise UserError(f"{path}: not valid JSON; remove its folder and rerun {making_call(path)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object; rerun {making_call(path)}")
    if CHECKSUM in data and sealed(data) != data:
        raise UserError(
            f"{path}: changed since it was written (its checksum is of other content); "
            "rerun the stage that made it with --overwrite"
        )
    return data


def optional_json(path: Path) -> dict[str, Any] | None:
    """`read_json`, or None if the file does not exist."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None


def is_complete(shard: Path) -> bool:
    """Whether the folder has a manifest, which is written last."""
    return (shard / MANIFEST).is_file()


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the checksum of all its other keys at its end."""
    rest = {key: value for key, value in data.items() if key != CHECKSUM}
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return rest | {CHECKSUM: found}


class _Counts(dict[str, Any]):
    """The counts of a manifest. A missing one is a flaw of the file, not of the code that asks for it."""

    def __init__(self, path: Path, counts: Mapping[str, Any]) -> None:
        super().__init__(counts)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self.path}: its counts have no {key}; {rerun(self.path)}")


def checked_manifest(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest in the file `path`. UserError if another version wrote it, or if its parts or counts are missing or
    malformed.
    """
    versions = manifest.get("versions")
    refuse_other_version(path, versions.get("rla") if isinstance(versions, dict) else None, remedy=rerun(path))
    parts, counts, inputs = manifest.get("parts"), manifest.get("counts"), manifest.get("input_digests", {})
    flaw = ""
    if not isinstance(parts, list) or not all(map(_is_part, parts)):
        flaw = "its parts are not a list of names, rows, bytes and digests"
    elif len({part["name"] for part in parts}) != len(parts):
        flaw = "it names a part twice"
    elif manifest.get("rows") != sum(part["rows"] for part in parts):
        flaw = "its rows are not those of its parts"
    elif not isinstance(inputs, dict) or not all(isinstance(found, str) for found in inputs.values()):
        flaw = "its input_digests are not digests by name"
    elif not isinstance(counts, dict) or any(type(counts.get(name, 0)) is not int for name in _COUNTED):
        flaw = "its counts are not numbers by name"
    if flaw:
        raise UserError(f"{path}: {flaw}; {rerun(path)}")
    return {**manifest, "counts": _Counts(path, counts or {})}


def _is_part(entry: Any) -> bool:
    """Whether an entry of `parts` has the name, rows, bytes and SHA-256 of a file."""
    if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
        return False
    sizes = [entry.get("rows"), entry.get("bytes")]
    plain = PART.fullmatch(name) is not None and isinstance(entry.get("sha256"), str)
    return plain and all(type(size) is int and size >= 0 for size in sizes)


def refuse_other_version(place: Path, found: object, *, remedy: str) -> None:
    """UserError unless `found`, the version that wrote `place`, is this version."""
    if found != __version__:
        wrote = f"version {shown_value(found)}" if found else "an unknown version"
        raise UserError(f"{place}: written by {wrote} of rla, and this is {__version__}; {remedy}, or use that version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The config, inputs and seed of an output: equal origins make equal outputs.

    `parameters`: the values that the digest `config` covers, empty if unknown. `folders`: the path of each input, as
    this call names it. Records do not hold them, because a run may be moved.
    """

    config: str
    inputs: Mapping[str, str]
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False)
    folders: Mapping[str, str] = field(default_factory=dict, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The keys by which outputs are compared."""
        return {"config_digest": self.config, "input_digests": dict(self.inputs), "seed": self.seed}

    def named(self) -> dict[str, Any]:
        """The further keys of a record, by which nothing is compared."""
        return {PARAMETERS: dict(self.parameters)} if self.parameters else {}

    def unlike(self, record: Mapping[str, Any]) -> str:
        """How an output that has this record differs."""
        return unlike_text(record, self.as_json() | self.named(), folders=self.folders)


def unlike_text(record: Any, made_from: Mapping[str, Any], *, folders: Mapping[str, str] | None = None) -> str:
    """How an output with this record differs from one made from `made_from`: which parameters, which inputs.

    Both hold the keys of `as_json` and `named`, as far as they have them. `folders`: the inputs of `made_from` by name.
    """
    found = record if isinstance(record, Mapping) else {}
    pieces = []
    if any(found.get(key) != made_from.get(key) for key in ("config_digest", "seed")):
        pieces.append(f"made with {_parameters_unlike(found, made_from)}")
    inputs = (record.get("input_digests") for record in (found, made_from))
    before, now = (each if isinstance(each, Mapping) else {} for each in inputs)
    if before != now:
        named = {key: (folders or {}).get(key, f"input {key}") for key in now}
        changed = [named[key] for key, value in now.items() if before.get(key, value) != value]
        added = [folder for key, folder in named.items() if key not in before]
        texts = [f"made from another {' and '.join(changed)} than lies there now"] if changed else []
        texts += [f"made without {' and '.join(added)}"] if added else []
        more = len(before.keys() - now.keys())
        pieces += texts + ([f"made from {counted(more, 'more input')}"] if more else [])
    return "; ".join(pieces) or "made from something else"


def _parameters_unlike(found: Mapping[str, Any], made_from: Mapping[str, Any]) -> str:
    said, own = found.get(PARAMETERS), made_from.get(PARAMETERS)
    if isinstance(said, Mapping) and own and (differing := parameter_differences(said, own)):
        return differences_text(differing)
    for key in ("config_digest", "seed"):  # one of the two does not name its parameters
        if found.get(key) != made_from.get(key):
            text = f"{shown_value(found.get(key))}, this call has {shown_value(made_from.get(key))}"
            return f"seed {text}" if key == "seed" else f"another config_digest ({text})"
    return "other parameters"


_OF_SLICE = re.compile(r"_manifest-\d+-of-(\d{1,5})\.parquet")


def slice_manifests(folder: Path, count: int) -> dict[Slice, dict[str, Any] | None]:
    """The manifest of each of the `count` slices, None if it is not there yet. UserError for a malformed one."""
    found: dict[Slice, dict[str, Any] | None] = {}
    for part in slices(count):
        path = part.manifest(folder)
        record = optional_json(path)
        found[part] = manifest = None if record is None else checked_manifest(path, record)
        for name, number in manifest["counts"].items() if manifest else ():
            if not isinstance(number, int | float):
                raise UserError(f"{path}: its count {name} is no number; remove it, and call the stage of that slice")
    return found


def unfinished(folder: Path) -> UserError:
    """The error for a folder without a manifest, with the missing slices and the remedy."""
    remedy = f"run {making_call(folder)}, again if it was interrupted"
    if not folder.exists():
        return UserError(f"{folder} does not exist; {remedy}")
    counts = [int(found[1]) for path in folder.iterdir() if (found := _OF_SLICE.fullmatch(path.name))]
    if not counts:
        return UserError(f"{folder} is incomplete (no {MANIFEST}); {remedy}")
    count = max(counts)
    missing = [part for part in slices(count) if not part.manifest(folder).exists()]
    if not missing:
        return UserError(
            f"{folder}: its {count} slices are not joined; call {making_call(folder)} with --slice 1/{count}"
        )
    names = ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return UserError(
        f"{folder} is incomplete: no manifest of {'slice' if len(missing) == 1 else 'slices'} {names}; "
        f"call {making_call(folder)} with --slice {missing[0]}, or bring that slice's files here"
    )


_MADE_BY = "# Written by rla "
HEADER = f"""\
{_MADE_BY}{__version__}
# All parameters of this run: of each section those of the last stage that read it, else of the last stage.
# Records hold their own.
"""


def run_config_path(run: Path) -> Path:
    return run / "config.yaml"


def check_run_version(run: Path) -> None:
    """UserError if another version made the run, as the first line of its `config.yaml` says."""
    path = run_config_path(run)
    if path.exists():
        first, *_ = read_regular(path).decode(errors="replace").splitlines() or [""]
        found = first.removeprefix(_MADE_BY) if first.startswith(_MADE_BY) else None
        refuse_other_version(path, found, remedy="name another run (--run)")


def read_run_config(run: Path) -> dict[str, Any]:
    """The nested parameters of a run. Raises UserError if it has no such file, if that is not a mapping, and as
    `check_run_version` does.
    """
    path = run_config_path(run)
    check_run_version(run)
    data = read_yaml(path, remedy="the next call of a stage of this run writes it")
    if not isinstance(data, dict):
        raise UserError(f"{path}: no mapping of sections; remove it, the next stage writes it")
    return data


def write_run_config(run: Path, resolved: Mapping[str, Any]) -> None:
    """Write the resolved parameters atomically, if the file does not hold them yet."""
    path = run_config_path(run)
    text = HEADER + yaml.safe_dump(dict(resolved), sort_keys=False, allow_unicode=True)
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def update_run_config(run: Path, resolved: Mapping[str, Any], sections: Sequence[str]) -> None:
    """Write the parameters of `sections` (`env`, `policy.reply`) and the seed; the parameters of other stages stay."""
    try:
        data = read_run_config(run)
    except UserError:  # none, or a damaged one
        write_run_config(run, resolved)
        return
    before = json.dumps(data)
    for path in ("seed", *sections):
        *parents, last = path.split(".")
        source, target = resolved, data
        for name in parents:
            if not isinstance(target.get(name), dict):
                target[name] = {}
            source, target = source[name], target[name]
        target[last] = source[last]
    if json.dumps(data) != before:  # YAML would take 12 ms
        write_run_config(run, data)


# Digests: of the files in a checkpoint or model folder, recorded when they are written and compared before they are
# used, and one that identifies an artifact. Threads read one file each: hashlib releases the interpreter lock. A core
# digests 1 to 2 GB/s if the processor has instructions for SHA-256, and about 0.4 GB/s without. Hidden files, which
# tools and systems leave, are ignored.

FILES = "files.json"
KEY = "files"
_THREADS = 16  # at most: few file systems read faster than so many cores digest

Records = Mapping[str, Mapping[str, Any]]  # path below the folder -> bytes and sha256


def record_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of all files below `folder`, in order."""
    sizes = {name: (folder / name).stat().st_size for name in _names(folder)}
    digests = _digests(folder, sizes)
    return {name: {"bytes": size, "sha256": digests[name]} for name, size in sizes.items()}


def joint_digest(records: Records) -> str:
    """SHA-256 over names and contents of all files, from the records of each."""
    lines = (f"{Path(name)}\0{one['sha256']}\n" for name, one in sorted(records.items(), key=lambda at: Path(at[0])))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def below(records: Records, part: str) -> dict[str, Mapping[str, Any]]:
    """The records of the files in the subfolder `part`, by their paths in it."""
    start = f"{part}/"
    return {name.removeprefix(start): one for name, one in records.items() if name.startswith(start)}


def write_records(folder: Path, records: Records) -> None:
    """`files.json`, which holds its own checksum."""
    write_json(folder / FILES, sealed({KEY: records}))


def read_records(file: Path) -> dict[str, dict[str, Any]] | None:
    """The records in `file`; None if it does not exist or holds none. Raises UserError if it is damaged."""
    found = (optional_json(file) or {}).get(KEY)
    if found is None:
        return None
    try:
        return {str(name): {"bytes": int(one["bytes"]), "sha256": str(one["sha256"])} for name, one in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{file}: not a record of files; call {making_call(file)} again") from None


def verify_recorded(
    folder: Path,
    records: Records,
    *,
    remedy: str,
    wanted: Callable[[str], bool] = lambda name: True,
) -> None:
    """UserError if a file whose path is `wanted` differs from its record, is missing, or was never recorded."""
    expected = {name: one for name, one in records.items() if wanted(name)}
    for name in sorted(expected.keys() | {name for name in _names(folder) if wanted(name)}):
        path = folder / name
        if name not in expected:
            raise UserError(f"{path}: not of the files that were written here; move it away")
        if not path.is_file():
            raise UserError(f"{path}: missing; {remedy}")
        if path.stat().st_size != expected[name]["bytes"]:
            raise UserError(f"{path}: changed since it was written (it has another size); {remedy}")
    sizes = {name: one["bytes"] for name, one in expected.items()}
    for name, found in _digests(folder, sizes).items():
        if found != expected[name]["sha256"]:
            raise UserError(f"{folder / name}: changed since it was written (it has another SHA-256); {remedy}")


def _names(folder: Path) -> list[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))


def _digests(folder: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """SHA-256 of each file, the largest first so that threads end together."""
    names = sorted(sizes, key=lambda name: (sizes[name], name), reverse=True)
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(file_digest, (folder / name for name in names)), strict=True))


class UnreadableFile(UserError):
    """The system refuses to read a file, which may be whole."""


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hex digits. Raises UnreadableFile."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableFile(f"{path}: cannot be read ({error.strerror or error}); mend that and call again") from None


def digest(path: Path) -> str:
    """16 hex digits that identify an artifact: its manifest, checkpoint record, or the file itself."""
    for record in (path / MANIFEST, path / "checkpoint.json"):
        with suppress(FileNotFoundError):  # another call may be replacing it
            if record.is_file():
                return hashlib.sha256(record_text(read_regular(record))).hexdigest()[:16]
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if (path / "config.json").is_file():
        return folder_digest(path)
    if (path / STARTED).is_file():
        raise unfinished(path)
    raise UserError(f"{path}: not a complete shard or checkpoint; run {making_call(path)}, again if it was interrupted")


def folder_digest(folder: Path) -> str:
    """Of a plain model folder: names, sizes and contents; of a file beyond 64 MiB its time in place of its content."""
    found = hashlib.sha256()
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith(".")):
        size, time = path.stat().st_size, path.stat().st_mtime_ns
        found.update(f"{path.name}:{size}".encode())
        found.update(path.read_bytes() if size <= 64 * MIB else str(time).encode())
    return found.hexdigest()[:16]
