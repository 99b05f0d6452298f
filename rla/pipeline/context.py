"""A stage command (a row of the table in `stages`), and the call that it gets: the resolved config, its folders, and
where to report progress.

Packages do the work of some options, with functions of the entry-point group `rla.options`, named by their options:

    [project.entry-points."rla.options"]
    "evaluate.from" = "answers:judge_file"

| option | asked for by | called with | returns |
|---|---|---|---|
| `evaluate.from` | `rla evaluate --from FILE` | the `StageContext` of each split, the file, `metrics` | a summary |
| `init.model` | `rla init --model` | folder or hub id, GB of the GPU or None | pipeline, `key=value`s, reasons |
| `warm_start.conversations` | warm-start | `StageContext` | `rla.training.warm_start.GivenExamples` |

`metrics` is the file to write, None for a file of the function's own choice next to the evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    """One command. `reads` and `writes` are artifact names of `rla.store.layout`; each is also an option `--<option>`.

    `sections` are the params that the stage depends on, whole (`env`) or by key (`policy.reply`). A stage with `beside`
    is not a part of the loop: it reads a run with the run's own parameters. `divided` stages may be sliced.
    `options` are further options of the command, each with its name, its annotation for typer and its default;
    `StageContext.options` has the values that are not None, by name.
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
    """A bar on a terminal, plain lines elsewhere. Used as a context manager by the command line, not by stages."""

    def start(self, description: str, total: int) -> None: ...

    def advance(self, count: int = 1, **fields: Any) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """One call of one stage. `paths` holds the options that were given; the rest follow `rla.store.layout`."""

    spec: StageSpec
    stages: Sequence[StageSpec]  # all of them: in a fresh folder another stage makes missing inputs
    config: Config
    run: Path
    iteration: int
    progress: Progress
    paths: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # the stage's own: source, split, export
    overwrite: bool = False
    # figures of this call that the stage wants in the record of its times
    measured: dict[str, float] = field(default_factory=dict)

    def path(self, option: str) -> Path:
        """The folder of a `reads` or `writes` option. One that a killed call has left aside comes back first."""
        from rla.store.removing import bring_back  # reads YAML, which `rla --help` must not wait for

        names = dict(self.spec.reads) | dict(self.spec.writes)
        found = self.paths[option] if option in self.paths else artifact(self.run, names[option], self.iteration)
        bring_back(found)
        return found

    @property
    def writes_into_run(self) -> bool:
        """Whether any output lies in the run folder; options may name other folders."""
        return any(self.path(option).is_relative_to(self.run) for option, _ in self.spec.writes)


@contextmanager
def called_again(ctx: StageContext, paths: Mapping[str, Path]) -> Iterator[list[str]]:
    """Arguments of `rla` for the same stage, run and iteration with these folders.

    The resolved parameters lie in a file that exists inside the block.
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


GROUP = "rla.options"


def implementation(option: str) -> Any:
    """The function of an option. Raises UserError if no package has it, or if it cannot be imported."""
    found = registered(GROUP)
    if option not in found:
        raise UserError(f"{option}: no installed package does this; install one with {option} in its {GROUP}")
    return loaded(found[option])
