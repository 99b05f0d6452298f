"""Parameters of a run that differ from the defaults."""

from __future__ import annotations

from pathlib import Path

from rla.config import resolved
from rla.report.tables import parameters_tables
from rla.store.manifest import write_run_config
from tests.unit.builders import configured


def test_the_table_names_what_differs_with_its_default(tmp_path: Path) -> None:
    config = configured(
        "credit.step_weight=0.5", "tasks.test_splits=[a, b]", "env.own.engine=textworld", env="alfworld"
    )
    write_run_config(tmp_path, resolved(config))
    (table,) = parameters_tables(tmp_path)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["credit.step_weight"] == ("0.5", "1.0")
    assert rows["tasks.test_splits"] == ('["a", "b"]', '["test"]')
    assert rows["env.own.engine"] == ("textworld", "fast")
    assert rows["env.name"] == ("alfworld", "null")
    assert "rollout.rollouts_per_task" not in rows and "train_policy.old" not in rows


def test_an_environment_that_is_not_installed_has_no_known_defaults(tmp_path: Path) -> None:
    config = resolved(configured(env="alfworld"))
    config["env"] |= {"name": "no-such", "own": {"key": "\x1b[31m"}}
    write_run_config(tmp_path, config)
    (table,) = parameters_tables(tmp_path)
    assert ("env.own.key", '"\\u001b[31m"', "-") in table.rows


def test_a_run_without_a_config_has_none(tmp_path: Path) -> None:
    assert parameters_tables(tmp_path) == []
