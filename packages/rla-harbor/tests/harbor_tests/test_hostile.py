"""Commands that attack: each harms its own episode at most, and none of them fakes a reward."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs_tests.execution.sandboxes import descendants, gone
from rla_programs.execution.shell import LONGEST

from harbor_tests.builders import needs_sandbox, one, played, written
from rla.store.records import Task

PYTEST = """#!/bin/bash
pytest -q /tests/test_it.py && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
CHECK = "from pathlib import Path\n\ndef test_it():\n    assert Path('/app/answer').read_text() == '42\\n'\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_sandbox()
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def row(folder: Path) -> Task:
    return one(written(folder, tests=PYTEST, files={"tests/test_it.py": CHECK}))


def attacked(row: Task, *actions: str, **own: object) -> list[str]:
    """The answers to an attack, as `attacks` makes them."""
    (seen,) = attacks(row, actions, **own)
    return seen


def attacks(row: Task, *lists: Sequence[str], **own: object) -> list[list[str]]:
    """The answers to attacks in episodes of their own, each of which has to lose without leaving a process; afterwards
    another episode is won.
    """
    found = []
    for actions in lists:
        before, started = descendants(), time.monotonic()
        seen = played(row, [*actions, "done"], **{"command_s": 3.0, **own})
        assert seen[-1].done and seen[-1].reward == 0.0
        assert time.monotonic() - started < 60
        assert gone(descendants() - before)
        found.append([one.text for one in seen])
    assert played(row, ["echo 42 > answer", "done"])[-1].reward == 1.0
    return found


def test_a_fork_bomb(row: Task) -> None:
    attacked(row, ":(){ :|:& };:", "for i in $(seq 500); do sleep 100 & done; wait")


def test_a_full_disk_and_too_many_files(row: Task) -> None:
    texts = attacked(row, "cat /dev/zero > /app/big; df / | tail -1", storage_mb=16)
    assert "No space left on device" in texts[1] or "File size limit" in texts[1] or "File too large" in texts[1]
    attacked(row, "i=0; while echo > /app/f$i; do i=$((i+1)); done 2>/dev/null")


def test_endless_output(row: Task) -> None:
    texts = attacked(row, "yes", "cat /dev/urandom")
    assert all("printed more than 1024 KB" in text for text in texts[1:3])
    assert all(len(text) < 5000 for text in texts)


def test_memory(row: Task) -> None:
    texts = attacked(row, "python3 -c 'x = bytearray(1 << 33)'", memory_mb=256)
    assert "MemoryError" in texts[1]


def test_the_tests_cannot_be_read_and_no_file_of_the_host_can(row: Task, folder: Path) -> None:
    texts = attacked(
        row,
        "ls /tests /solution /logs/verifier",
        f"ls {folder}; find / -name 'test_it.py' -o -name 'solve.sh' 2>/dev/null | grep -v '^/proc\\|^/usr'",
        "cat /etc/shadow; ls /home; cat /proc/1/environ",
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 22))'",
    )
    assert texts[1].count("No such file or directory") == 3
    assert "test_it.py" not in texts[2] and "solve.sh" not in texts[2]
    assert texts[3].count("No such file or directory") == 3
    assert "PermissionError" in texts[4] or "Operation not permitted" in texts[4]


def test_a_reward_that_is_written_early(row: Task) -> None:
    write = "mkdir -p /logs/verifier; cd /logs/verifier; echo 1 > reward.txt; echo '{\"reward\": 1}' > reward.json"
    attacks(
        row,
        [write],
        [f"{write}; chmod 000 /logs/verifier"],
        ["mkdir -p /x; ln -s /x /logs/verifier 2>/dev/null || ln -sfn /x /logs; echo 1 > /x/reward.txt"],
        ["rm -rf /logs; mkdir -p /x/verifier; ln -s /x /logs; echo 1 > /x/verifier/reward.txt"],
        ["mkdir -p /logs/verifier/reward.txt /logs/verifier/reward.json"],
    )


def test_background_processes_do_not_see_the_tests(row: Task) -> None:
    loop = "while true; do echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh; done"
    attacked(row, f"nohup setsid bash -c '{loop}' > /dev/null 2>&1 &", f"(trap '' TERM HUP; {loop}) & disown -a")


def test_tests_and_settings_that_the_policy_puts_in_place(row: Task) -> None:
    attacks(
        row,
        ["mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod -R 555 /tests"],
        ["mkdir -p /x/tests; ln -s /x/tests /tests"],
        ["printf '[pytest]\\naddopts = --collect-only\\n' > /pytest.ini; cp /pytest.ini /tox.ini"],
        ["echo 'collect_ignore = [\"tests\"]\nimport os; os._exit(0)' > /conftest.py"],
        [
            "mkdir -p ~/.local/lib/python3.{9,10,11,12,13,14}/site-packages; "
            "for f in ~/.local/lib/*/site-packages; do echo 'import os; os._exit(0)' > $f/usercustomize.py; done"
        ],
    )


def test_programs_and_libraries_cannot_be_replaced(row: Task) -> None:
    fake = "printf '#!/bin/bash\\nexit 0\\n'"
    texts = attacked(
        row,
        f"{fake} > /box/bin/pytest; {fake} > /usr/local/bin/pytest; mv /box /x; mv /usr /x; rm -rf /usr/bin",
        "echo /tmp/evil.so > /etc/ld.so.preload; mv /bin /x; mv /lib /x; ln -sfn /tmp /bin",
        "mount -t tmpfs none /usr; unshare -m true; kill -9 1; python3 -c 'import os; os.kill(1, 9)'",
        "mv /root /x; for d in /*; do mv $d/.pyenv /tmp/ 2>&1; done",
    )
    assert "Read-only file system" in texts[1] and "Read-only file system" in texts[2]


def test_odd_commands(row: Task) -> None:
    odd = ["echo \0", "x" * (LONGEST + 1), "if then", "echo \ud800 <<<'", "exec sleep 0", "rmdir $PWD; cd /app"]
    texts = attacked(row, *odd)
    assert texts[1].startswith("[not run: a command has at most") and texts[2] == texts[1]
    assert "syntax error" in texts[3]
