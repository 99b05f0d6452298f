"""A stage command (a row of the table in `stages`) and its call: the resolved config, the folders, and the progress.

Packages implement some options with functions in the entry-point group `rla.options`, named by the options:

| option | used by | arguments | returns |
|---|---|---|---|
| `evaluate.from` | `rla evaluate --from FILE` | the `StageContext` of each split, the file, `metrics` | a summary |
| `envs.check` | `rla envs --check` | name, params file or None, `key=value`s, `episodes`, `seed` | number broken |
| `judge.server` | score-steps, evaluate | the `JudgeConfig` | a `rla.rollouts.scores.Replier` |
| `init.model` | `rla init --model` | folder or hub id, GB of the GPU or None | pipeline, `key=value`s, reasons |
| `warm_start.conversations` | warm-start | `StageContext` | files, function |

`metrics` is the file to write, or None for the default next to the evaluation. `envs.check` also prints all checks.
`warm_start.conversations` returns the files that the examples depend on, and a function from a tokenizer and an
`SftConfig` to a list of `Example`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from rla.errors import UserError
from rla.plugins import loaded, registered
from rla.store.layout import artifact, path_below

if TYPE_CHECKING:
    from rla.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One command. `reads` and `writes` are pairs of an option `--<option>` and an artifact of `rla.store.layout`.

    `sections`: parameters that the stage depends on, whole (`env`) or by key (`policy.reply`). `beside`: the stage is
    not part of the loop and reads a run with the run's own parameters. `divided`: the stage can be sliced. `options`:
    further options of the command as (name, annotation for typer, default); `StageContext.options` has the given
    values.
    """

    name: str
    module: str
    summary: str
    example: str
    reads: tuple[tuple[str, str], ...]  # (option, artifact)
    writes: tuple[tuple[str, str], ...]
    sections: tuple[str, ...]
    beside: bool = False
    divided: bool = False
    options: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def looped(self) -> bool:
        """Whether each iteration has outputs of its own."""
        return any("{i}" in path_below(name) for _, name in self.writes)


class Progress(Protocol):
    """One line that a terminal redraws, lines elsewhere. The command line opens and closes it."""

    def start(self, description: str, total: int) -> None: ...

    def advance(self, count: int = 1, *, resumed: bool = False, **fields: Any) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """One call of one stage. `paths`: the folders that options name; others are those of `rla.store.layout`."""

    spec: StageSpec
    stages: Sequence[StageSpec]  # all stages: in a fresh folder another one makes missing inputs
    config: Config
    run: Path
    iteration: int
    progress: Progress
    paths: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of this stage: split, slice, ...
    overwrite: bool = False
    # Figures of this call for the record of its times.
    measured: dict[str, float] = field(default_factory=dict)

    def path(self, option: str) -> Path:
        """The folder of an option. A folder that a killed call was replacing is restored first."""
        from rla.store.atomic import bring_back

        names = dict(self.spec.reads) | dict(self.spec.writes)
        found = self.paths[option] if option in self.paths else artifact(self.run, names[option], self.iteration)
        bring_back(found)
        return found

    @property
    def writes_into_run(self) -> bool:
        """Whether any output is in the run folder; options may name other folders."""
        return any(self.path(option).is_relative_to(self.run) for option, _ in self.spec.writes)


@contextmanager
def called_again(ctx: StageContext, paths: Mapping[str, Path]) -> Iterator[list[str]]:
    """Arguments of `rla` for the same stage, run and iteration with these folders. The resolved parameters are in a
    file that exists inside the block.
    """
    import yaml

    from rla.config import resolved  # here, because `rla --help` imports this module

    with TemporaryDirectory() as folder:
        params = Path(folder) / "params.yaml"
        params.write_text(yaml.safe_dump(resolved(ctx.config), sort_keys=False))
        arguments = [ctx.spec.name, "--params", str(params), "--run", str(ctx.run), "--iteration", str(ctx.iteration)]
        for option, path in paths.items():
            arguments += [f"--{option}", str(path)]
        yield arguments


Log = Callable[[Mapping[str, Any]], None]


class FollowsCalls(Protocol):
    """A section of a package (`rla.config.load`) that follows the calls of stages."""

    def follow_call(self, ctx: StageContext) -> Callable[[], None]:
        """Called before a stage works. The function is called once its outputs are complete, even if a warning stops
        the run, but not in the ranks of a launcher. Raises UserError to refuse the call.
        """


class FollowsTraining(Protocol):
    """A section of a package that follows the updates of training stages."""

    def follow_training(self, run: Path, stage: str, config: Config) -> AbstractContextManager[Log]:
        """Entered for as long as a stage trains, in each of its processes. On rank 0 the function gets the metrics of
        every new update. Raises UserError to refuse the call.
        """


def followers(config: Config, method: str) -> list[Any]:
    """The bound `method` of each section that has it."""
    found = (getattr(getattr(config, entry.name), method, None) for entry in fields(config))
    return [one for one in found if one is not None]


GROUP = "rla.options"


def implementation(option: str) -> Any:
    """The function of an option. Raises UserError if no package registers it, or if it cannot be imported."""
    found = registered(GROUP)
    if option not in found:
        remedy = "install the package that docs/guide/install.md#packages names for it"
        raise UserError(f"{option}: no installed package does this; {remedy}")
    return loaded(found[option])
