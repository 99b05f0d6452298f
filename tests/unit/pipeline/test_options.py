"""Options whose work only packages do."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from rla import pipeline
from rla.errors import UserError
from rla.pipeline import implementation


def test_the_function_of_an_option_is_found_or_its_absence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="evaluate.from", value="rla.seeds:derive", group=pipeline.GROUP)
    monkeypatch.setattr(pipeline, "registered", lambda group: {entry.name: entry})
    assert implementation("evaluate.from").__name__ == "derive"
    with pytest.raises(UserError, match=r"export.other: no installed package does this; install one .*rla.options"):
        implementation("export.other")
