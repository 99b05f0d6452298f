"""`<run>/config.yaml`: every parameter of a run with its value, defaults included, as the last call resolved them.

It may serve as a params file: `--params <run>/config.yaml` repeats the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla import __version__
from rla.config.load import plain_data, yaml_flaw
from rla.errors import UserError
from rla.store.atomic import write_text
from rla.store.record import read_regular, refuse_other_version

RUN_CONFIG = "config.yaml"
MADE_BY = "# Written by rla "
HEADER = f"""\
{MADE_BY}{__version__}
# All parameters of this run: of each section those of the last stage that read it, else of the last stage.
# Records hold their own.
"""


def run_config_path(run: Path) -> Path:
    return run / RUN_CONFIG


def check_run_version(run: Path) -> None:
    """UserError if another version made the run, as the first line of its `config.yaml` says."""
    path = run_config_path(run)
    if path.exists():
        first, *_ = read_regular(path).decode(errors="replace").splitlines() or [""]
        found = first.removeprefix(MADE_BY) if first.startswith(MADE_BY) else None
        refuse_other_version(path, found, remedy="name another run (--run)")


def read_run_config(run: Path) -> dict[str, Any]:
    """The nested parameters of a run. Raises UserError if it has no such file, if that is not a mapping, and as
    `check_run_version` does.
    """
    import yaml

    path = run_config_path(run)
    check_run_version(run)
    try:
        data = plain_data(read_regular(path).decode())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the next call of a stage of this run writes it") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML ({yaml_flaw(error)}); remove it, the next stage writes it") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: no mapping of sections; remove it, the next stage writes it")
    return data


def write_run_config(run: Path, resolved: Mapping[str, Any]) -> None:
    """Write the resolved parameters atomically, if the file does not hold them yet."""
    import yaml

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
    for path in ("seed", *sections):
        *parents, last = path.split(".")
        source, target = resolved, data
        for name in parents:
            source = source[name]
            if not isinstance(target.get(name), dict):
                target[name] = {}
            target = target[name]
        target[last] = source[last]
    write_run_config(run, data)
