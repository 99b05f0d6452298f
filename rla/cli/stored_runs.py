"""`--run s3://bucket/run`: what a command fetches into the mirror of such a run first, and sends afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.mirroring.urls import refuse_urls, url_of

if TYPE_CHECKING:
    from rla.pipeline.spec import StageSpec

LOOKING = ("report", "judge-accuracy")  # stages that take the newest run unless one is named
NEWEST = "by default the newest below runs"  # of commands that look at a run
ALWAYS = ("config.yaml", "timings")
MORE = {  # what a stage reads or writes beside its row of the table
    "make-tasks": ("splits",),
    "warm-start": ("0/conversations",),
    "evaluate": ("splits", "eval/{i}/scores", "eval/{i}/probe", "probe"),
    "report": ("",),
}
# The pictures that a stage makes beside trajectories, and those that it looks at: others never fetch any.
SHOWN_BY = {"rollout": ("images",), "evaluate": ("eval_images",)}
SEEN_BY = dict.fromkeys(("score-steps", "train-policy", "train-rm"), ("images",))
# Of the first iteration and its own: what warnings compare.
COMPARED = ("metrics.json", "policy/metrics.json", "rm/metrics.json", "trajectories", "scores", "candidates")


def here(run: Path | None, *, planned: bool = False, places: Sequence[str] = ("",)) -> Path | None:
    """The folder to read a run in: of a URL its mirror, with all but weights as the store has them now.

    `planned`: with the first weights, of which DVC looks at the content. `places`: the files and folders to fetch.
    """
    url = url_of(run)
    if url is None:
        return run
    from rla.mirroring.keys import is_weight
    from rla.mirroring.mirror import Mirror

    mirror = Mirror(url)
    mirror.fetch(places, wanted=lambda key: not is_weight(key) or (planned and key.startswith("init/")))
    return mirror.folder


def call_on_store(
    spec: StageSpec,
    values: Mapping[str, Any],
    call: Callable[[Mapping[str, Any]], None],
    *,
    more: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
) -> None:
    """`call` a stage with its options, where they name a run by URL with its mirror. `more`: places of the run that
    a call with these options reads, beside those that its stage always reads.

    A slice whose others have ended meanwhile, on other machines, is called once more: then it joins them.
    """
    refuse_urls((name.removeprefix("path_").removeprefix("own_"), one) for name, one in values.items() if name != "run")
    url = url_of(values["run"])
    if url is None:
        call(values)
        return
    from rla.mirroring.mirror import Mirror
    from rla.mirroring.sender import kept_on_store

    refuse_ranks(url)
    mirror, iteration = Mirror(url), values["iteration"]
    mirror.fetch(read_by(spec, iteration), wanted=lambda key: needed(spec, key))
    local = {**values, "run": mirror.folder}
    if places := more(local):
        mirror.fetch(places)
    if values["dry_run"]:
        call(local)
        return
    written = written_by(spec, iteration)
    with kept_on_store(mirror, written):
        call(local)
    if values.get("own_slice") and slices_came(mirror.folder, spec, iteration, lambda: mirror.fetch(written)):
        with kept_on_store(mirror, written):
            call(local)


@contextmanager
def changed_here(run: Path | None, *, dry_run: bool = False) -> Iterator[Path | None]:
    """`here`, for a command that changes the run: what it changes is changed on the store, too.

    `dry_run`: it changes nothing.
    """
    folder = here(run)
    if folder == run or dry_run:
        yield folder
        return
    from rla.mirroring.mirror import Mirror
    from rla.mirroring.sender import kept_on_store

    with kept_on_store(Mirror(url_of(run) or ""), ()):
        yield folder


def refuse_ranks(url: str) -> None:
    """UserError in one of several processes that a launcher has started: each would send the same."""
    from rla.errors import UserError
    from rla.processes.ranks import launched

    if launched():
        raise UserError(f"{url}: processes of a launcher share a folder; call the stage once, with launch.training")


def written_by(spec: StageSpec, iteration: int) -> list[str]:
    """What a stage makes, and what an interrupted call has left of it."""
    from rla.mirroring.keys import PARTIAL
    from rla.store.layout import artifact

    names = [*(name for _, name in spec.writes), *SHOWN_BY.get(spec.name, ())]
    made = [artifact(Path(), name, iteration).as_posix() for name in names]
    more = [text.format(i=iteration) for text in MORE.get(spec.name, ()) if spec.name in ("make-tasks", "evaluate")]
    return [*made, *(f"{place}{PARTIAL}" for place in made), *more]


def read_by(spec: StageSpec, iteration: int) -> list[str]:
    """Files and folders of the run that a stage needs here: what it reads, what it goes on with, what warnings need."""
    from rla.metrics.guards import GUARDS
    from rla.mirroring.keys import is_below
    from rla.store.layout import artifact

    names = [*(name for _, name in spec.reads), *SEEN_BY.get(spec.name, ())]
    places = [*ALWAYS, *(artifact(Path(), name, iteration).as_posix() for name in names)]
    places += written_by(spec, iteration)
    places += [text.format(i=iteration) for text in MORE.get(spec.name, ())]
    if iteration <= 1:  # where nothing was trained the models as they started act
        places += ["init"]
    if spec.name in {guard.stage for guard in GUARDS}:
        places += [f"{number}/{name}" for number in {1, iteration} for name in COMPARED]
    places = list(dict.fromkeys(places))
    return [place for place in places if not any(place != other and is_below(place, other) for other in places)]


def needed(spec: StageSpec, key: str) -> bool:
    """A report needs no weights."""
    from rla.mirroring.keys import is_weight

    return spec.name != "report" or not is_weight(key)


def slices_came(run: Path, spec: StageSpec, iteration: int, fetch: Callable[[], object]) -> bool:
    """Whether all slices of the stage's shard are here after a `fetch`, and nobody has joined them."""
    from rla.store.layout import artifact
    from rla.store.slices import STARTED, is_complete, optional_record, slice_count, slice_manifests

    shards = [artifact(run, name, iteration) for _, name in spec.writes]
    if all(is_complete(shard) for shard in shards if shard.suffix != ".json"):
        return False
    fetch()
    for shard in shards:
        started = optional_record(shard, STARTED)
        if started and not is_complete(shard) and None not in slice_manifests(shard, slice_count(*started)).values():
            return True
    return False
