"""Dockerfiles as steps for a box: what they become, and which ones need an image."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_programs.execution.dockerfile import BuildPlan, Copy, NeedsImage, RunCommand, plan_of


def planned(tmp_path: Path, text: str, *files: str) -> BuildPlan:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "Dockerfile").write_text(text)
    return plan_of(tmp_path)


def copied(tmp_path: Path, instruction: str, *files: str) -> dict[str, str]:
    """Path in the box -> file, of a Dockerfile with this COPY in /app."""
    made, step = planned(tmp_path, f"FROM debian\nWORKDIR /app\n{instruction}\n", *files).steps
    assert isinstance(made, Copy) and isinstance(step, Copy)
    assert (made.word, made.files, made.folders) == ("WORKDIR", [], ["/app"])
    return {target: path.relative_to(tmp_path).as_posix() for path, target in step.files}


def test_folders_variables_and_commands_are_taken_in_order(tmp_path: Path) -> None:
    text = """# syntax=docker/dockerfile:1
FROM python:3.12-slim-bookworm@sha256:0123abcd
ARG NAME=one
ENV PLACE=/srv/$NAME WORDS="two words"
ENV OLD a b
WORKDIR ${PLACE}
run echo 1 && \\
    # a comment in between
    echo 2
ENV PATH=/srv/bin:$PATH
WORKDIR sub
RUN ["touch", "a b"]
LABEL x=y
EXPOSE 80
USER root
CMD ["bash"]
"""
    plan = planned(tmp_path, text)
    first, second = (step for step in plan.steps if isinstance(step, RunCommand))
    assert [step.folders for step in plan.steps if isinstance(step, Copy)] == [["/srv/one"], ["/srv/one/sub"]]
    assert (" ".join(first.command.split()), first.folder) == ("echo 1 && echo 2", "/srv/one")
    assert first.variables == {"NAME": "one", "PLACE": "/srv/one", "WORDS": "two words", "OLD": "a b"}
    assert (second.command, second.folder) == ("touch 'a b'", "/srv/one/sub")
    assert plan.folder == "/srv/one/sub" and plan.variables["PATH"].startswith("/srv/bin:/box/bin:")


def test_copies_go_where_docker_puts_them(tmp_path: Path) -> None:
    files = ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt")
    assert copied(tmp_path, "COPY a.txt .", *files) == {"/app/a.txt": "a.txt"}
    assert copied(tmp_path, "COPY a.txt other", *files) == {"/app/other": "a.txt"}
    assert copied(tmp_path, "COPY a.txt b.txt /srv/", *files) == {"/srv/a.txt": "a.txt", "/srv/b.txt": "b.txt"}
    assert copied(tmp_path, "COPY *.txt /srv/", *files) == {"/srv/a.txt": "a.txt", "/srv/b.txt": "b.txt"}
    deep = {"/srv/c.txt": "sub/c.txt", "/srv/deep/d.txt": "sub/deep/d.txt"}
    assert copied(tmp_path, "COPY sub /srv", *files) == deep
    assert copied(tmp_path, 'ADD ["sub", "/srv"]', *files) == deep
    whole = copied(tmp_path, "COPY . .", *files)
    assert whole.keys() == {f"/app/{name}" for name in (*files, "Dockerfile")}


def test_a_mode_is_kept_and_an_owner_ignored(tmp_path: Path) -> None:
    (step,) = planned(tmp_path, "FROM debian\nCOPY --chown=1:1 --chmod=0750 a /b\n", "a").steps
    assert isinstance(step, Copy) and step.mode == 0o750


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("FROM alpine:3.20", "FROM alpine"),
        ("FROM org/image", "FROM org/image"),
        ("FROM debian AS build\nFROM debian", "FROM debian AS build"),
        ("FROM debian\nFROM debian", "FROM debian"),
        ("FROM debian\nRUN apt-get update && apt-get install -y jq", "RUN with apt-get"),
        ("FROM debian\nRUN python3 -m pip install x", "RUN with pip"),
        ("FROM debian\nRUN git clone https://example.org/x", "RUN with git clone"),
        ("FROM debian\nRUN useradd dev", "RUN with useradd"),
        ("FROM debian\nRUN --mount=type=cache,target=/c true", "RUN with --mount"),
        ("FROM debian\nRUN <<EOF\ntrue\nEOF", "RUN with <<EOF"),
        ("FROM debian\nCOPY --from=build /a /b", "COPY with --from=build"),
        ("FROM debian\nADD https://example.org/x /x", "ADD with https://"),
        ("FROM debian\nADD a.tar.gz /x", "ADD with a.tar.gz"),
        ("FROM debian\nUSER dev", "USER dev"),
        ("FROM debian\nENTRYPOINT start", "ENTRYPOINT start"),
        ("FROM debian\nVOLUME /data", "VOLUME /data"),
    ],
)
def test_what_needs_an_image(tmp_path: Path, lines: str, why: str) -> None:
    with pytest.raises(NeedsImage, match=why):
        planned(tmp_path, lines + "\n", "a")


def test_words_that_only_look_like_installers(tmp_path: Path) -> None:
    text = "FROM debian\nRUN echo a > pip.txt && mkdir /opt/uv && git init && ./apt-like.sh\n"
    assert len(planned(tmp_path, text).steps) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RUN true\n", "has no FROM"),
        ("FROM debian\nCOPY missing /x\n", "copies 'missing'"),
        ("FROM debian\nCOPY ../tests /x\n", r"copies '\.\./tests'"),
        ("FROM debian\nCOPY ../tests/* /x\n", r"copies '\.\./tests/\*'"),
        ('FROM debian\nRUN ["open\n', "delimiter|Unterminated"),
    ],
)
def test_what_is_not_a_dockerfile(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test.sh").write_text("")
    (tmp_path / "environment").mkdir()
    with pytest.raises(ValueError, match=why):
        planned(tmp_path / "environment", text)
