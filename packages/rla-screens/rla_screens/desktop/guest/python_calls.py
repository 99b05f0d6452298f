"""Calls of Python in the commands that verify: what lies in the user's folders does not speak for them."""

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
# The program of `python -c`, in a process whose memory and descriptors other programs of the user cannot open.
GUARDED = (
    f"import ctypes, sys; ctypes.CDLL(None).prctl({DUMPABLE}, 0, 0, 0, 0); "
    "exec(compile(sys.argv.pop(1), '<string>', 'exec'), {'__name__': '__main__', '__builtins__': __builtins__})"
)


def undumpable() -> None:
    """From now on other programs of the same user can open neither the memory nor the descriptors of this process."""
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)


@dataclass(frozen=True)
class PythonCall:
    """`kind`: c or m for the option that ends the others, and then what it is given; else a script, "" for stdin."""

    options: list[str]
    kind: str
    program: str
    arguments: list[str]

    @property
    def looks_beside(self) -> bool:
        """Whether it is to import from a folder of the user's: a script does, or a module that is not Python's."""
        own_module = self.kind == "m" and self.program.partition(".")[0] not in sys.stdlib_module_names
        return own_module or (self.kind == "" and self.program not in ("", "-"))


def python_call(words: Sequence[str]) -> PythonCall:
    """What the words behind the name of Python ask for."""
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
    """A Python program on the command line, or a module of the standard library, without what the user's folders would
    bring into it: the home's `usercustomize`, or a `json.py` in the working folder.
    """
    words = list(arguments)
    if not PYTHON.fullmatch(words[0]):
        return words
    call = python_call(words[1:])
    if call.kind == "c":
        return [words[0], "-I", *call.options, "-c", GUARDED, call.program, *call.arguments]
    return words if call.looks_beside else [words[0], "-I", *words[1:]]


def program_space(arguments: Sequence[str]) -> dict[str, str]:
    """The environment of a program: unless it calls scripts, Python takes no modules from a working folder. In the text
    of a shell `-c` goes before scripts.
    """
    words = [word for text in arguments for word in shell_words(text)]
    calls = [python_call(words[at + 1 :]) for at, word in enumerate(words) if PYTHON.fullmatch(word)]
    safe = any(call.kind == "c" for call in calls) or not any(call.looks_beside for call in calls)
    return dict(os.environ) | {"PYTHONNOUSERSITE": "1"} | ({"PYTHONSAFEPATH": "1"} if safe else {})


def shell_words(text: str) -> list[str]:
    """Words of a shell's text; a pipe, a bracket or a redirection is the end of a call, a `-`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&`\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return ["-" if word.strip("();<>|&`\n") == "" and word else word for word in lexer]
    except ValueError:  # a quotation that does not end
        return text.split()
