"""`make` lists its targets, and the documentation names none that is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.markdown_pages import TOP, name_of, pages

MORE = "tests/bench/Makefile"
CALL = re.compile(r"\bmake (-f tests/bench/Makefile )?([a-z]+(?:-[a-z]+)*)\b")


def listed(makefile: str) -> list[str]:
    command = ["make", "--no-print-directory", "-f", makefile]
    found = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    return [line.split()[0] for line in found.stdout.splitlines()]


def declared(makefile: str) -> list[str]:
    return re.findall(r"^([a-z][a-z-]*):", (TOP / makefile).read_text(), re.MULTILINE)


def test_there_are_few_targets_and_each_has_a_line_of_help() -> None:
    assert listed("Makefile") == declared("Makefile")
    assert len(declared("Makefile")) <= 12
    assert listed(MORE) == declared(MORE)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_pages_name_targets_that_are_there(page: Path) -> None:
    """Only in code: "make" is a word of the language, too."""
    code = re.findall(r"`(make [^`\n]+)`|^(make .*)$", page.read_text(), re.MULTILINE)
    for text in (one or other for one, other in code):
        call = CALL.match(text)
        if call is not None:
            assert call[2] in declared(MORE if call[1] else "Makefile"), text
