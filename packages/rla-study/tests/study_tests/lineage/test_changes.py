"""Accepted tasks beside their parents on the page of a run, with what differs marked."""

from __future__ import annotations

import pytest
from rla_study.lineage.changes import changes_of, changes_section, compared
from rla_study.lineage.lineages import Lineage

from rla.report.render import report_page


@pytest.mark.parametrize(
    ("before", "after", "gone", "new"),
    [
        ("put a mug in desk.", "put a hot mug in desk.", [], ["hot"]),
        ("put a mug", "put two mugs", ["a", "mug"], ["two", "mugs"]),
        ("", "a", [], ["a"]),
        ("same", "same", [], []),
    ],
)
def test_words_that_differ_are_marked(before: str, after: str, gone: list[str], new: list[str]) -> None:
    old, young = compared(before, after)
    assert "".join(text for _, text in old) == before and "".join(text for _, text in young) == after
    assert [text.strip() for mark, text in old if mark == "gone"] == gone
    assert [text.strip() for mark, text in young if mark == "new"] == new


def lineage() -> Lineage:
    proposal = {
        "task_id": "child",
        "parent_id": "root",
        "instruction": "put a <b>clean</b> mug in desk.",
        "direction": "harder",
        "edit": '{"goal": "<script>"}',
        "critique": "too easy",
        "valid": True,
        "parent_accuracy": 1.0,
        "verdict": {"iteration": 3, "accepted": True, "accuracy": 0.5},
    }
    refused = proposal | {"task_id": "other", "verdict": {"iteration": 3, "accepted": False, "accuracy": 0.0}}
    root = {"task_id": "root", "instruction": "put a mug in desk."}
    return Lineage(slot="root", root=root, versions=(proposal, refused), measurements=(), returns=(), standing=None)


def test_an_accepted_task_stands_beside_its_parent() -> None:
    (change,) = changes_of(lineage())
    assert (change.iteration, change.parent_accuracy, change.child_accuracy) == (3, 1.0, 0.5)
    page = report_page("r", ["h"], [changes_section([change], most=5)])
    assert "<ins> &lt;b&gt;clean&lt;/b&gt;</ins> mug" in page and "won 100.0%" in page and "won 50.0%" in page
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "1 earlier ones" in "".join(changes_section([change, change], most=1).body)
