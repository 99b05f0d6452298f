"""The page of a comparison and the command: texts never act, and nothing comes from a network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from rla.cli.app import run
from study_tests.comparing.builders import LITTLE, MUCH, NOTHING, made_run, params

HOSTILE = "_<script>alert(1)<!script> [bold]$\\frac$\x1b[31m"


@pytest.fixture
def hostile(tmp_path: Path) -> list[str]:
    """A name and a parameter that would act as HTML, as markup of rich, as mathematics and in a terminal."""
    config = params(text="<img src=x onerror=alert(2)> [red]\x1b]0;title\x07")
    base = made_run(tmp_path / "base", {0: NOTHING, 2: LITTLE}, config=params())
    other = made_run(tmp_path / HOSTILE, {0: NOTHING, 2: MUCH}, config=config, metrics=[{"mu": 1.1}, {"mu": 1.2}])
    return [str(base), str(other)]


class Elements(HTMLParser):
    """The tags of a page, and every attribute that could load something or act."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loading: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        acting = [one for one in attrs if one[0] in {"src", "href", "xlink:href", "data"} or one[0].startswith("on")]
        self.loading += [one for one in acting if not (one[1] or "").startswith("#")]


def test_a_page_stands_alone_and_its_texts_do_not_act(
    hostile: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "compare.html"
    assert run(["compare", *hostile, "--html", str(html)]) == 0
    assert capsys.readouterr().out == f"{html}: 2 compared\n"
    text = html.read_text()
    found = Elements()
    found.feed(text)
    assert not {"script", "img", "link", "iframe", "object", "base"} & found.tags
    assert found.loading == []
    assert "url(http" not in text and "@import" not in text
    assert "&lt;script&gt;alert(1)" in text and "&lt;img src=x onerror" in text and "\x1b" not in text
    assert "<svg" in text and "+50.0" in text and "<details open>" in text


def test_the_terminal_shows_names_as_they_are(hostile: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *hostile]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said
    assert "minus base: +50.0 points, 95% interval -6.6 to +100.0" in said
    assert "[bold]" in said and "[red]" in said
    assert "Parameters that differ" in said


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = made_run(tmp_path / "base", {2: LITTLE}, config=params())
    assert run(["compare", str(base), str(tmp_path / "absent")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "absent: no such run" in captured.err and captured.out == ""


def test_the_base_and_the_iteration_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        made_run(tmp_path / name, {0: NOTHING, 2: won}, config=params(weight))
        for name, won, weight in (("a", LITTLE, 1.0), ("b", MUCH, 0.5))
    ]
    assert run(["compare", *map(str, runs), "--base", str(runs[1]), "--at", "2"]) == 0
    assert "a minus b: -50.0 points" in capsys.readouterr().out
