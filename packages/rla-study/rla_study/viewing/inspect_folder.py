"""A folder of Inspect logs: one for each iteration and each evaluation of a run. Each call adds the new ones.

    <run>/inspect/iteration-0003.eval, evaluation-0000-test.eval
    <run>/inspect/exported.json     the run, and for each log a digest of the shards that it was made from

A log whose shards have not changed is kept, and one whose shards are gone is removed. The same shards give the same
bytes. An iteration that is still being played has a log of the finished groups.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.errors import UserError
from rla.plugins import need_package
from rla.store.atomic import refuse_others, remove_file, write_atomic, write_json
from rla.store.manifest import MANIFEST, file_digest, is_complete, optional_json
from rla.store.reading import read_part, shard_parts
from rla.store.records import content_id
from rla_study.showing.episodes import Played, played_in, played_iterations, shown_episodes
from rla_study.viewing.inspect_log import Exported, TokenCounts, inspect_log
from rla_study.whole_folder import whole_folder

EXPORTED = "exported.json"
FORMAT = "1"  # of the logs; a change exports all of them again
AGAIN = "call this again when the stage has ended"
STAMP = (1980, 1, 1, 0, 0, 0)  # of every member, so that the same episodes give the same bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """One log: its file name, and the paths of its episodes."""

    file: str
    title: str
    iteration: int
    split: str | None
    played: Played


def _need_inspect() -> None:
    """Raises UserError if the extra is missing."""
    need_package("inspect_ai", install="rla-study[inspect]", why="episodes are shown by Inspect")


def export_new(
    run: Path,
    config: Config,
    folder: Path,
    *,
    iterations: Collection[int] = (),
    split: str | None = None,
    waiting: bool = False,
) -> list[str]:
    """Write the logs that are missing or made from other shards, and remove those whose shards are gone. Returns the
    names.

    `iterations`, `split`: export only these and leave all others. Raises UserError if a requested one does not exist,
    if nothing was played and the caller is not `waiting` for it, and if the folder holds anything else, such as the
    logs of another run.
    """
    _need_inspect()
    if not run.is_dir():
        raise UserError(f"{run}: no such run; give one of the folders below runs")
    whose = content_id(os.path.relpath(run.resolve(), folder.resolve()))  # a run may be moved together with its logs
    known = _known_logs(folder, run, whose)
    places = list(_log_places(run, config, iterations, split))
    whole = not iterations and split is None
    if not places and not waiting:
        raise UserError(f"{run}: nothing was played yet; call `rla rollout` first")
    changed = []
    for place in places:
        parts = shard_parts(place.played.trajectories)
        digest = _shards_digest(place.played, parts)
        if known.get(place.file) != digest or not (folder / place.file).is_file():
            # so that logs of a killed call are still known as ours
            _write_exported(folder, whose, known | {place.file: ""})
            write_place(folder / place.file, run, config, place, digest, parts)
            known[place.file] = digest
            _write_exported(folder, whose, known)
            changed.append(place.file)
    gone = known.keys() - {place.file for place in places} if whole else ()
    for name in sorted(gone):
        remove_file(folder / name)
    if gone:
        _write_exported(folder, whose, {name: known[name] for name in known if name not in gone})
    return changed


def _write_exported(folder: Path, whose: str, logs: dict[str, str]) -> None:
    write_json(folder / EXPORTED, {"run": whose, "logs": logs})


def _known_logs(folder: Path, run: Path, whose: str) -> dict[str, str]:
    """File -> digest. Raises UserError if the folder has unknown files, or logs of a run that is not `whose`."""
    record = optional_json(folder / EXPORTED) or {}
    if record and record.get("run") != whose:
        raise UserError(f"{folder}: holds the logs of another run than {run}; name another folder, or remove it")
    said = record.get("logs", {})
    known = said if isinstance(said, dict) else {}
    if folder.is_dir():
        ours = {EXPORTED, *known}
        refuse_others(folder, [path for path in sorted(folder.iterdir()) if path.name not in ours and not _ours(path)])
    return {str(name): str(digest) for name, digest in known.items() if Path(str(name)).name == name}


def _ours(path: Path) -> bool:
    """Whether a killed call has left this file."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _log_places(run: Path, config: Config, iterations: Collection[int], split: str | None) -> Iterator[LogPlace]:
    """Iterations first, then the evaluations of every held-out split. With `iterations` or `split`, only those."""
    if split is None:
        for number in iterations or played_iterations(run, config, growing=True):
            played = played_in(run, config, number, growing=True)
            title = f"iteration {number}"
            yield LogPlace(file=f"iteration-{number:04}.eval", title=title, iteration=number, split=None, played=played)
    for name in [split] if split else () if iterations else config.tasks.test_splits:
        for number in iterations or played_iterations(run, config, name, growing=True):
            played = played_in(run, config, number, name, growing=True)
            title = f"evaluation {number} ({name})"
            yield LogPlace(
                file=f"evaluation-{number:04}-{name}.eval", title=title, iteration=number, split=name, played=played
            )


def _shards_digest(played: Played, parts: Sequence[Path]) -> str:
    """Digest of the manifests of all complete shards, and of the `parts` of trajectories that still grow."""
    folders = [played.trajectories, played.scores, played.policy_rewards, played.rm_rewards]
    folders += [folder for folder, _ in played.pools]
    said = [file_digest(folder / MANIFEST) if is_complete(folder) else "" for folder in folders]
    if not said[0]:
        said += [f"{part.name} {part.stat().st_size}" for part in parts]
    return content_id(FORMAT, *said)


def write_place(path: Path, run: Path, config: Config, place: LogPlace, digest: str, parts: Sequence[Path]) -> None:
    """Make one log and write it as a whole. Raises UserError if a stage replaces the shard at the same time."""
    played = place.played
    record = optional_json(played.trajectories / MANIFEST)
    if record is None and not parts:
        raise UserError(f"{played.trajectories}: its episodes are being replaced; {AGAIN}")
    newest, manifest = (parts[-1], {}) if record is None else (played.trajectories / MANIFEST, record)
    source = Exported(
        name=place.title,
        run=run.name,
        env=", ".join(filter(None, (config.env.name, place.split))),
        policy=f"policy-{max(0, place.iteration - 1) if place.split is None else place.iteration}",
        created=datetime.fromtimestamp(int(newest.stat().st_mtime), UTC).isoformat(),
        digest=digest,
        metadata=_about_shard(place, manifest),
        unfinished=record is None,
    )
    episodes = list(shown_episodes(played, None, config).values())
    tokens = token_counts(parts)
    if lost := [one.trajectory_id for one in episodes if one.trajectory_id not in tokens]:
        raise UserError(f"{played.trajectories}: episode {lost[0]} came while its shard was read; {AGAIN}")
    log = inspect_log(source, episodes, tokens)
    write_atomic(path, lambda temporary: _write_eval(log, temporary))


def _about_shard(place: LogPlace, manifest: dict[str, Any]) -> dict[str, Any]:
    kept = ("config_digest", "seed", "counts", "versions")
    found: dict[str, Any] = {"iteration": place.iteration}
    if place.split is not None:
        found["split"] = place.split
    return found | {name: manifest[name] for name in kept if name in manifest}


def token_counts(parts: Sequence[Path]) -> dict[str, TokenCounts]:
    """Token counts by trajectory_id."""
    found = {}
    for part in parts:
        for row in read_part(part, ["trajectory_id", "segments.list.element.sampled"], kind="trajectories").to_pylist():
            sampled = [segment["sampled"] for segment in row["segments"]]
            own, all_ = sum(map(sum, sampled)), sum(map(len, sampled))
            found[row["trajectory_id"]] = TokenCounts(sampled=own, read=all_ - own)
    return found


def _write_eval(log: Any, path: Path) -> None:
    """Write a `.eval` file. Inspect stamps its members with the time, so they are packed again without it."""
    from inspect_ai.log import write_eval_log

    with tempfile.TemporaryDirectory() as folder:
        stamped = Path(folder) / "log.eval"
        write_eval_log(log, stamped, format="eval")
        with zipfile.ZipFile(stamped) as found, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name in found.namelist():
                made.writestr(zipfile.ZipInfo(name, STAMP), found.read(name), zipfile.ZIP_DEFLATED)


def new_site(site: Path) -> None:
    """Raises UserError if `site` exists, because Inspect would replace it, and if the extra is missing."""
    _need_inspect()
    if site.exists():
        raise UserError(f"{site} exists already: remove it or name another folder")


def write_site(folder: Path, site: Path) -> None:
    """Write a static site of all logs, without their original paths. It is complete or absent."""
    from inspect_ai.log import bundle_log_dir

    with whole_folder(site) as partial, contextlib.redirect_stdout(io.StringIO()):  # Inspect draws a progress bar
        bundle_log_dir(log_dir=str(folder), output_dir=str(partial), overwrite=True)
        index = partial / "index.html"
        index.write_text(index.read_text().replace(str(folder.resolve()), folder.resolve().parent.name))


@dataclass(slots=True, kw_only=True)
class Following:
    """Each call exports new episodes, reports them and returns the last log. An unreadable run is reported once."""

    run: Path
    config: Config
    folder: Path
    say: Callable[[str], None]
    last: str = ""

    def __call__(self) -> Path | None:
        changed: list[str] = []
        try:
            changed = export_new(self.run, self.config, self.folder, waiting=True)
            said = f"new: {', '.join(changed)}" if changed else ""
        except (UserError, OSError) as error:  # a stage is replacing the shard
            said = "" if str(error) == self.last else f"not exported: {error}"
            self.last = str(error)
        if said:
            self.say(said)
        return self.folder / changed[-1] if changed else None
