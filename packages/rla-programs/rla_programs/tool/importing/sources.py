"""The source of a row that does not name one: the name of its benchmark, else that of its file or data set.

    aime            aime2024   the year in the columns ID (2024-I-1) or year, else in the first name that has one
    gpqa            gpqa-diamond   the subset in the first name that has one, else gpqa
    livecodebench   livecodebench-v6   the release in the first name that has one, else livecodebench
    others          the name of the requested file, folder or data set, as for AIME without a year

Names are searched in this order: the file's, its folder's, and the requested name. Folders further up do not matter, so
a source does not depend on them. `rla_programs.tool.decoration` recognises the benchmarks by these names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from rla_programs.coding.importing.columns import Row
from rla_programs.coding.importing.hub import PREFIX
from rla_programs.coding.importing.livecode import LIVECODE

YEAR = "(?:19|20)[0-9]{2}"
CONTEST = re.compile(rf"({YEAR})-II?-[0-9]{{1,2}}")  # problem 1 of the first contest is 2024-I-1
AIME = re.compile(rf"aime[-_ ]?(?:({YEAR})|(2[0-9]))(?![0-9]|[-_]{YEAR})")  # a range of years does not match
GPQA = re.compile(r"gpqa[-_ ]?(diamond|main|extended|experts)")
RELEASE = re.compile(r"(?:livecodebench|lcb)[-_ ]?v([0-9]{1,2})(?![0-9])")


def source_of(layout: str, row: Row, *, file: str, asked: str, named: bool = False) -> str:
    """The source of a row of `file` that does not name one. `asked`: the requested file, folder or data set of the Hub.
    `named`: the user named the layout, and it was not guessed from the columns.
    """
    own = _own_name(asked)
    names = [PurePath(file).stem.casefold(), PurePath(file).parent.name.casefold(), own]
    if layout == "aime":
        year = _aime_year(row, names, known=named)
        return f"aime{year}" if year else own if not named or "aime" in own else f"aime-{own}"
    if layout == "gpqa":
        return "-".join(("gpqa", *_first(GPQA, names)))
    if layout == LIVECODE:
        return "-v".join((LIVECODE, *_first(RELEASE, names)))
    return own


def _own_name(asked: str) -> str:
    """The name of a file without its ending, of a folder, or of a data set of the Hub."""
    inner = PurePath(asked.removeprefix(PREFIX).partition("@")[0].partition(":")[0])
    return (inner.stem if inner.suffix else inner.name).casefold() or "questions"


def _aime_year(row: Row, names: Sequence[str], *, known: bool) -> str:
    """The year of a contest, or an empty string. A column for a year counts only if the row is `known` to be from AIME,
    or a name says so, because other contests have such columns, too.
    """
    contest = CONTEST.fullmatch(str(row.get("ID", row.get("id"))))
    if contest:
        return contest[1]
    if known or any("aime" in name for name in names):
        told = re.fullmatch(YEAR, str(row.get("year", row.get("Year"))))
        if told:
            return told[0]
    found = next(filter(None, map(AIME.search, names)), None)
    return (found[1] or f"20{found[2]}") if found else ""


def _first(pattern: re.Pattern[str], names: Sequence[str]) -> tuple[str, ...]:
    """The match of the pattern's group in the first name that has one; empty if none has."""
    found = next(filter(None, map(pattern.search, names)), None)
    return () if found is None else (found[1],)
