"""Which run a plan means: a name that changes with its overrides, and no run of other parameters replaced unasked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

from rla.config import Config, effective_parameters
from rla.config.differences import Differences, differences_text, flattened, parameter_differences
from rla.config.load import read_yaml
from rla.envs.configured import load_config
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.pipeline.params_files import SMALL, default_run, safe_name
from rla.store.layout import places_of
from rla.store.record import STARTED
from rla.store.run_config import check_run_version, read_run_config, run_config_path

LONGEST = 48  # characters that overrides add to a name
DIGITS = 8  # of the digest in a name that cannot say all


def override_suffix(params: Path, overrides: Sequence[str], config: Config) -> str:
    """`-credit.step_weight-0.5`: what the overrides change of a params file, as far as outputs depend on it.

    Empty if nothing changes. If not all of it fits into `LONGEST` characters, the suffix has the first of the keys and
    ends with a digest of all. Values are those of `config`, which has the overrides.
    """
    known, own = flattened(effective_parameters(config)), read_yaml(params, remedy="give --params a file") or {}
    keys = {text.partition("=")[0] for text in overrides}
    chosen = {key: value for key, value in known.items() if any(f"{key}.".startswith(f"{each}.") for each in keys)}
    changed = {key: value for key, value in sorted(chosen.items()) if value_at(own, key) != value}
    if not changed:
        return ""
    plain = ",".join(f"{key}={value}" for key, value in changed.items())
    texts = [f"{key}-{value}" for key, value in changed.items()]
    parts = [safe_name(text) for text in texts]
    if parts == texts and len("-".join(parts)) <= LONGEST:
        return f"-{'-'.join(parts)}"
    room = LONGEST - DIGITS - 1
    longer = accumulate([parts[0][:room], *parts[1:]], "{}-{}".format)
    *_, kept = takewhile(lambda text: len(text) <= room, longer)
    digest = hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]
    return f"-{kept}-{digest}"


def value_at(data: Any, key: str) -> Any:
    """The value of a dotted key of nested mappings; None where it is not there."""
    return reduce(lambda node, name: node.get(name) if isinstance(node, Mapping) else None, key.split("."), data)


def refuse_other_run(run: Path, config: Config, stages: Sequence[StageSpec]) -> None:
    """UserError where `run` has outputs of parameters that this call would change, and with them its outputs.

    Of the parameters only those count that a stage with an output, whole or begun, has read.
    """
    if not run_config_path(run).exists():
        return
    check_run_version(run)
    read = [path for spec in stages if has_output(run, spec) for path in spec.sections]
    found = run_differences(read_run_config(run), config, read) if read else {}
    if found:
        raise UserError(
            f"{run}: made with {differences_text(found)}; name another run (--run, make run RUN=...), or replace what "
            "depends on that (--overwrite, make run OVERWRITE=1)"
        )


def run_differences(recorded: Mapping[str, Any], config: Config, sections: Sequence[str]) -> Differences:
    """What differs from the parameters of a run, of the keys of `sections` that outputs depend on."""
    now = flattened(effective_parameters(config, sections))
    before = flattened(recorded)
    if engine := value_at(recorded, "generator.own.engine"):
        # outputs depend on the engine that computed (`GeneratorConfig.engine_name`); recorded is what was asked for
        before |= {"generator.backend": engine}
    return parameter_differences({key: value for key, value in before.items() if key in now}, now)


def differing_parameters(run: Path, config: Config, sections: Sequence[str], *, read: Path) -> Iterator[str]:
    """Notes about a call on `run` with the parameters of the file `read`, of the keys of `sections` that outputs depend
    on: those that differ from the run's, and those of a ./params.yaml about this run that was not read.
    """
    own, local = run_config_path(run), Path(SMALL)
    if not own.is_file():
        return
    try:
        if found := run_differences(read_run_config(run), config, sections):
            yield f"note: {own} has {differences_text(found)}"
        if read == own and local.is_file() and run.name.partition("-seed")[0] == default_run(local).name:
            unread = run_differences(read_run_config(run), load_config(local, [f"seed={config.seed}"]), sections)
            if unread:
                said = differences_text(unread, now="it has")
                yield f"note: {local} is not read ({said}); --params {local} does that"
    except UserError:  # a damaged file, which a stage writes anew, or a params.yaml that the call did not ask for
        return


def has_output(run: Path, spec: StageSpec) -> bool:
    """Whether the stage has made anything of the run that is still there, in any iteration."""
    return any(
        path.is_file() or any(not file.name.startswith((".", STARTED)) for file in path.iterdir())  # not only begun
        for _, name in spec.writes
        for path in places_of(run, name)
    )
