"""Kinds of edits, and counts of them."""

from __future__ import annotations

import pytest

from rla.adaptation.drafting import added, edit_kind, edit_tally

FIELDS = ("goal", "hint", "move", "remove")


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        ('{"hint": "where"}', "hint"),
        ('{"remove": [{"object": "mug 2"}], "move": [{"object": "mug 1", "to": "safe 1"}]}', "move+remove"),
        ('{"goal": {}, "rm -rf": 1}', "unreadable"),
        ("{}", "unreadable"),
        ("[1]", "unreadable"),
        ("put it in the safe", "unreadable"),
        ("[" * 100_000, "unreadable"),
        ("", "unreadable"),
        (None, "none"),
    ],
)
def test_the_kind_is_what_the_edit_changes(edit: str | None, kind: str) -> None:
    assert edit_kind(edit, FIELDS) == kind


def test_counts_by_direction_and_kind_add_up() -> None:
    first = edit_tally(
        [
            ("harder", '{"hint": "none"}', {"proposed": True, "valid": True}),
            ("harder", '{"hint": "how"}', {"proposed": True, "valid": False}),
            ("easier", "?", {"proposed": True, "valid": False}),
        ],
        fields=FIELDS,
    )
    assert first == {
        "easier": {"unreadable": {"proposed": 1, "valid": 0}},
        "harder": {"hint": {"proposed": 2, "valid": 1}},
    }
    second = edit_tally([("harder", '{"hint": "how"}', {"accepted": True})], fields=FIELDS)
    assert added([first, second])["harder"] == {"hint": {"proposed": 2, "valid": 1, "accepted": 1}}
    assert added([]) == {}
