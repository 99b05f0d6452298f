"""Hidden tests of LiveCodeBench and LiveBench: JSON text, or base64 of zlib of a pickle of JSON text.

A pickle is a program, and this one is never run: its opcodes are listed, and only those that make up a single string
are accepted. The unpacked size is limited in bytes, opcodes and values, because a few kilobytes can unpack to
gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from typing import Any

from rla_programs.coding.data.problems import InvalidProblem
from rla_programs.coding.importing.bounds import bounded_json

LARGEST = 256 * 1024 * 1024
LONGEST_PROGRAM = 16  # opcodes: any protocol takes six for one string
TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
AROUND = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"})


def hidden_tests(encoded: str) -> Any:
    """The JSON value of either form. Raises `InvalidProblem`."""
    try:
        return bounded_json(encoded)
    except InvalidProblem:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        return bounded_json(pickled_text(unpacked(base64.b64decode(encoded, validate=True))))
    except InvalidProblem:
        raise
    except (ValueError, RecursionError, zlib.error, binascii.Error) as error:
        raise InvalidProblem("the hidden tests cannot be decoded") from error


def unpacked(data: bytes, *, largest: int = LARGEST) -> bytes:
    """The decompressed `data`. Raises `ValueError` beyond `largest` bytes, `zlib.error` for other data."""
    stream = zlib.decompressobj()
    found = stream.decompress(data, largest)
    if not stream.eof:
        raise ValueError("cut off, or too large")
    return found


def pickled_text(data: bytes) -> str:
    """The string in a pickle. Raises `ValueError` for a pickle of anything else."""
    found: list[str] = []
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if number > LONGEST_PROGRAM:
            raise ValueError("not a pickle of one text")
        if opcode.name in TEXTS and not found and isinstance(argument, str):
            found.append(argument)
        elif opcode.name not in AROUND:
            raise ValueError("not a pickle of one text")
    if not found:
        raise ValueError("not a pickle of one text")
    return found[0]
