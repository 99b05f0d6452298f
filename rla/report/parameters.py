"""What a run was called with: the parameters that differ from their defaults, from its `config.yaml`."""

from __future__ import annotations

from pathlib import Path

from rla.config.differences import ABSENT, parameter_differences, shown_key, shown_value
from rla.envs.configured import defaults_of
from rla.report.tables import Table
from rla.store.run_config import read_run_config, run_config_path

UNKNOWN = "-"  # the default of a key that this installation does not know


def parameters_tables(run: Path) -> list[Table]:
    """One table; none for a run without a `config.yaml`. Raises UserError where that is damaged."""
    if not run_config_path(run).exists():
        return []
    recorded = read_run_config(run)
    changed = parameter_differences(defaults_of(recorded), recorded)
    rows = [
        (shown_key(key), shown_value(value), UNKNOWN if default is ABSENT else shown_value(default))
        for key, (default, value) in changed.items()
        if value is not ABSENT
    ]
    note = f"{run_config_path(run)} has all parameters; each manifest has those of its own."
    return [
        Table(
            title="Parameters that differ from the default",
            columns=("parameter", "value", "default"),
            rows=tuple(rows),
            note=note,
            listing=True,
        )
    ]
