"""Workers divide a machine's GPUs: each has an engine of its own, whatever the environment names."""

from __future__ import annotations

import pytest

from rla.llm.resident_messages import VARIABLE
from rla.processes.workers import worker_environment


def test_workers_do_not_share_the_resident_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/somewhere/engine")
    monkeypatch.setenv("RLA_OTHER", "kept")
    own = worker_environment(workers=2, gpus=["0"])
    assert VARIABLE not in own
    assert own["RLA_OTHER"] == "kept"
