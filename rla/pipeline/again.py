"""The call of a stage as a command line, for processes that do the work of this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from rla.config import resolved
from rla.pipeline.context import StageContext


@contextmanager
def called_again(ctx: StageContext, paths: Mapping[str, Path]) -> Iterator[list[str]]:
    """Arguments of `rla` for the same stage, run and iteration with these folders.

    The resolved parameters lie in a file that exists inside the block.
    """
    with TemporaryDirectory() as folder:
        params = Path(folder) / "params.yaml"
        params.write_text(yaml.safe_dump(resolved(ctx.config), sort_keys=False))
        arguments = [ctx.spec.name, "--params", str(params), "--run", str(ctx.run), "--iteration", str(ctx.iteration)]
        for option, path in paths.items():
            arguments += [f"--{option}", str(path)]
        yield arguments
