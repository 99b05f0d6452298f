"""Calls of Python in verifying commands, protected from code in the user's folders that would forge their answers."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

DUMPABLE = 4  # prctl
PYTHON = re.compile(r"(?:.*/)?python3?(?:\.\d+)?")
# Options in one word; -c, -m, -W and -X take the rest of it, or the next word.
OPTIONS = re.compile(r"-(?P<flags>[a-zA-Z?]*?)(?P<last>[cmWX])(?P<given>.*)", re.DOTALL)
# Runs the program of `python -c` in a process whose memory and descriptors the user's other programs cannot open.
GUARDED = (
    f"import ctypes, sys; ctypes.CDLL(None).prctl({DUMPABLE}, 0, 0, 0, 0); "
    "exec(compile(sys.argv.pop(1), '<string>', 'exec'), {'__name__': '__main__', '__builtins__': __builtins__})"
)


def undumpable() -> None:
    """From now on other programs of the same user can open neither the memory nor the descriptors of this process."""
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)


@dataclass(frozen=True)
class PythonCall:
    """`kind`: c or m for the option that ends the options, and `given` its value; else a script, "" for stdin."""

    options: list[str]
    kind: str
    program: str
    arguments: list[str]

    @property
    def looks_beside(self) -> bool:
        """Whether it imports from the user's folders on purpose: a script, or a module outside the standard library."""
        own_module = self.kind == "m" and self.program.partition(".")[0] not in sys.stdlib_module_names
        return own_module or (self.kind == "" and self.program not in ("", "-"))


def _python_call(words: Sequence[str]) -> PythonCall:
    """The parsed words behind the name of Python."""
    options, rest = list[str](), list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        found = OPTIONS.fullmatch(word)
        if found and found["last"] in ("c", "m"):
            options += [f"-{found['flags']}"] if found["flags"] else []
            program = found["given"] or (rest.pop(0) if rest else "")
            return PythonCall(options, found["last"], program, rest)
        options.append(word)
        if found and not found["given"] and rest:
            options.append(rest.pop(0))
    return PythonCall(options, "", rest[0] if rest else "", rest[1:])


def by_itself(arguments: Sequence[str]) -> list[str]:
    """A Python program on the command line, or a module of the standard library, without anything that the user's
    folders could inject: the home's `usercustomize`, or a `json.py` in the working folder.
    """
    words = list(arguments)
    if not PYTHON.fullmatch(words[0]):
        return words
    call = _python_call(words[1:])
    if call.kind == "c":
        return [words[0], "-I", *call.options, "-c", GUARDED, call.program, *call.arguments]
    return words if call.looks_beside else [words[0], "-I", *words[1:]]


def program_space(arguments: Sequence[str]) -> dict[str, str]:
    """The environment of a program. Unless it calls scripts, Python takes no modules from a working folder. In the text
    of a shell, `-c` takes precedence over scripts.
    """
    words = [word for text in arguments for word in _shell_words(text)]
    calls = [_python_call(words[at + 1 :]) for at, word in enumerate(words) if PYTHON.fullmatch(word)]
    safe = any(call.kind == "c" for call in calls) or not any(call.looks_beside for call in calls)
    return dict(os.environ) | {"PYTHONNOUSERSITE": "1"} | ({"PYTHONSAFEPATH": "1"} if safe else {})


def _shell_words(text: str) -> list[str]:
    """Words of a shell's text; a pipe, a bracket or a redirection ends a call and becomes `-`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&`\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return ["-" if word.strip("();<>|&`\n") == "" and word else word for word in lexer]
    except ValueError:  # an unclosed quotation
        return text.split()
