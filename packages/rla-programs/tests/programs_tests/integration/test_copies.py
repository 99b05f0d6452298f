"""COPY in a box, as Docker does it: each line was checked against Docker 20.10 with BuildKit."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_programs.execution import Limits
from rla_programs.execution.dockerfile import plan_of
from rla_programs.execution.shell import Shell, shell_boxes

from rla.errors import UserError

FILES = ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "two/e.txt")
SUB = {"c.txt": "sub/c.txt", "deep/d.txt": "sub/deep/d.txt"}
COPIES = [
    # a file
    ("COPY a.txt .", {"/app/a.txt": "a.txt"}),
    ("COPY a.txt ..", {"/a.txt": "a.txt"}),
    ("COPY a.txt other", {"/app/other": "a.txt"}),
    ("COPY a.txt other/", {"/app/other/a.txt": "a.txt"}),
    ("COPY a.txt notes.", {"/app/notes.": "a.txt"}),
    ("COPY /a.txt ./x/y", {"/app/x/y": "a.txt"}),
    ("COPY ./sub/c.txt other/deep/", {"/app/other/deep/c.txt": "sub/c.txt"}),
    ("COPY a.txt /new", {"/new": "a.txt"}),
    ("COPY a.txt /new/../x", {"/x": "a.txt"}),
    ("COPY ${NAME}.txt /new/", {"/new/a.txt": "a.txt"}),
    # a file onto a folder: of WORKDIR, of RUN, of the base, of an earlier COPY
    ("COPY a.txt /app", {"/app/a.txt": "a.txt"}),
    ("COPY a.txt /made", {"/made/a.txt": "a.txt"}),
    ("COPY a.txt /opt", {"/opt/a.txt": "a.txt"}),
    ("COPY two /new\nCOPY a.txt /new", {"/new/e.txt": "two/e.txt", "/new/a.txt": "a.txt"}),
    ("COPY a.txt /new\nCOPY b.txt /new", {"/new": "b.txt"}),
    # several files
    ("COPY a.txt b.txt .", {"/app/a.txt": "a.txt", "/app/b.txt": "b.txt"}),
    ("COPY a.txt b.txt /new/", {"/new/a.txt": "a.txt", "/new/b.txt": "b.txt"}),
    ("COPY a.txt b.txt /app", {"/app/a.txt": "a.txt", "/app/b.txt": "b.txt"}),
    ("COPY a.txt b.txt /new", {"/new": "b.txt"}),
    ("COPY *.txt /new/", {"/new/a.txt": "a.txt", "/new/b.txt": "b.txt"}),
    ("COPY *.txt /made", {"/made/a.txt": "a.txt", "/made/b.txt": "b.txt"}),
    ("COPY *.txt /new", {"/new": "b.txt"}),
    ("COPY a?txt /new/", {"/new/a.txt": "a.txt"}),
    ("COPY [b]*.txt /new/", {"/new/b.txt": "b.txt"}),
    # the contents of folders
    ("COPY sub /new", {f"/new/{name}": file for name, file in SUB.items()}),
    ("COPY sub/ /made", {f"/made/{name}": file for name, file in SUB.items()}),
    ("COPY sub two /new", {f"/new/{name}": file for name, file in SUB.items()} | {"/new/e.txt": "two/e.txt"}),
    ("COPY a.txt sub /new/", {f"/new/{name}": file for name, file in SUB.items()} | {"/new/a.txt": "a.txt"}),
    ("COPY sub a.txt /new", {f"/new/{name}": file for name, file in SUB.items()} | {"/new/a.txt": "a.txt"}),
    ("COPY sub*/ /new/", {f"/new/{name}": file for name, file in SUB.items()}),
    ('ADD ["sub", "/new"]', {f"/new/{name}": file for name, file in SUB.items()}),
    ("COPY . /new", {f"/new/{file}": file for file in (*FILES, "Dockerfile")}),
]


def boxed(context: Path, instructions: str, command: str) -> str:
    """The output of a command in the box of a Dockerfile."""
    for name in FILES:
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(f"<{name}>")
    (context / "Dockerfile").write_text(f"FROM debian\nARG NAME=a\nRUN mkdir -p /made\nWORKDIR /app\n{instructions}\n")
    try:
        shell = Shell(shell_boxes(), Limits(wall_s=60.0, cpu_s=60.0, processes=16, file_mb=16))
    except UserError as error:
        pytest.skip(str(error))
    try:
        assert plan_of(context).follow(shell, seconds=20.0) == ""
        return shell.run(command, "/", {}, seconds=20.0).text
    finally:
        shell.close()


@pytest.mark.parametrize(("instructions", "copies"), COPIES, ids=[text for text, _ in COPIES])
def test_copies_go_where_docker_puts_them(tmp_path: Path, instructions: str, copies: dict[str, str]) -> None:
    found = boxed(tmp_path, instructions, "grep -r '' /app /made /new /opt /srv /x /a.txt 2>/dev/null")
    expected = {path: f"<{file}>" for path, file in copies.items() if not path.endswith("Dockerfile")}
    lines = [line for line in found.splitlines() if "/Dockerfile:" not in line]
    assert dict(line.split(":", 1) for line in lines) == expected
    assert ("/new/Dockerfile" in copies) == ("/new/Dockerfile:" in found)


def test_flags_and_names_with_blanks(tmp_path: Path) -> None:
    (tmp_path / "two words").mkdir()
    (tmp_path / "two words/x").write_text("x")
    lines = 'COPY --chown=1:1 --chmod=0750 ["two words", "/new/"]'
    assert boxed(tmp_path, lines, "stat -c '%a %n' /new/*") == "750 /new/x\n"


def test_empty_folders_are_copied_too(tmp_path: Path) -> None:
    (tmp_path / "sub/empty").mkdir(parents=True)
    (tmp_path / "none").mkdir()
    assert boxed(tmp_path, "COPY sub /new\nCOPY none /other", "ls -d /new/* /other").split() == [
        "/new/c.txt",
        "/new/deep",
        "/new/empty",
        "/other",
    ]
