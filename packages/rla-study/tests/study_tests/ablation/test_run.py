"""Two calls in one root: the second waits while the first makes what arms begin with."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from rla_study.ablation.run import alone


def test_a_second_call_waits_until_the_first_has_made_the_starts(tmp_path: Path) -> None:
    waits, made, order = Event(), Event(), list[str]()

    def say(text: str) -> None:
        order.append(text)
        waits.set()

    def second() -> None:
        with alone(tmp_path, say):
            order.append("second")
        made.set()

    with alone(tmp_path, order.append):
        thread = Thread(target=second)
        thread.start()
        assert waits.wait(10)
        assert not made.wait(0.1)
        order.append("first")
    thread.join(10)

    assert order == [
        f"{tmp_path}: another call is making the starts of the arms; this one waits for it",
        "first",
        "second",
    ]


def test_a_call_begins_where_nobody_else_does(tmp_path: Path) -> None:
    said = list[str]()
    for _ in range(2):
        with alone(tmp_path / "new", said.append):
            pass
    assert not said
