"""Levels 1 to 4: strings and words."""

from __future__ import annotations

from itertools import permutations

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, word, words

CATALOGUE = Catalogue()
S = word("s")
LONG = word("s", shortest=4, longest=12)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@CATALOGUE.add(1, range(2, 8))
def repeat(k: int) -> Puzzle:
    return Puzzle(
        reads=(S,),
        task=f"s written {k} times in a row",
        code=Code(f"s * {k}"),
        answer=lambda s: s * k,
        wrong=(Code(f"s * {k + 1}"), Code("s")),
    )


@CATALOGUE.add(1, permutations("abc", 2))
def between(first: str, last: str) -> Puzzle:
    return Puzzle(
        reads=(S,),
        task=f"{first} followed by s followed by {last}",
        code=Code(f'"{first}" + s + "{last}"'),
        answer=lambda s: first + s + last,
        wrong=(Code(f'"{last}" + s + "{first}"'), Code(f's + "{first}" + "{last}"'), Code(f'"{first}" + s')),
    )


@CATALOGUE.add(2, "abcde")
def count_letter(letter: str) -> Puzzle:
    return Puzzle(
        reads=(LONG,),
        task=f"how many times the letter {letter} occurs in s",
        code=Code(f's.count("{letter}")'),
        answer=lambda s: s.count(letter),
        wrong=(Code("len(s)"), Code(f'int("{letter}" in s)'), Code(f'len(s) - s.count("{letter}")')),
    )


@CATALOGUE.add(2, range(2, 6))
def every(k: int) -> Puzzle:
    return Puzzle(
        reads=(LONG,),
        task=f"every letter of s whose position, counted from 0, is divisible by {k}",
        code=Code(f"s[::{k}]"),
        answer=lambda s: s[::k],
        wrong=(Code(f"s[:{k}]"), Code(f"s[1::{k}]"), Code(f"s[{k}:]")),
    )


@CATALOGUE.add(2, range(1, 6))
def drop(k: int) -> Puzzle:
    return Puzzle(
        reads=(word("s", shortest=6, longest=12),),
        task=f"s without its first {k} letters",
        code=Code(f"s[{k}:]"),
        answer=lambda s: s[k:],
        wrong=(Code(f"s[:{k}]"), Code(f"s[:-{k}]"), Code(f"s[{k + 1}:]")),
    )


@CATALOGUE.add(2, permutations("abcd", 2))
def swap_letter(old: str, new: str) -> Puzzle:
    return Puzzle(
        reads=(LONG,),
        task=f"s with every {old} replaced by {new}",
        code=Code(f's.replace("{old}", "{new}")'),
        answer=lambda s: s.replace(old, new),
        wrong=(Code(f's.replace("{new}", "{old}")'), Code(f's.replace("{old}", "")'), Code("s")),
    )


@CATALOGUE.add(3, range(1, 6))
def long_words(k: int) -> Puzzle:
    return Puzzle(
        reads=(words("a"),),
        task=f"the words of a that have more than {k} letters, in their order",
        code=Code("b", (f"b = [w for w in a if len(w) > {k}]",)),
        answer=lambda a: [w for w in a if len(w) > k],
        wrong=(
            Code("b", (f"b = [w for w in a if len(w) <= {k}]",)),
            Code("b", (f"b = [w for w in a if len(w) > {k + 1}]",)),
            Code("a"),
        ),
        many=True,
    )


@CATALOGUE.add(3, "abcd")
def words_with(letter: str) -> Puzzle:
    return Puzzle(
        reads=(words("a"),),
        task=f"how many words of a contain the letter {letter}",
        code=Code(f'sum("{letter}" in w for w in a)'),
        answer=lambda a: sum(letter in w for w in a),
        wrong=(Code(f'"".join(a).count("{letter}")'), Code(f'sum(w[0] == "{letter}" for w in a)'), Code("len(a)")),
    )


@CATALOGUE.add(4, range(1, 14))
def caesar(k: int) -> Puzzle:
    def shifted(source: str, by: int) -> str:
        return "".join(ALPHABET[(ALPHABET.index(letter) + by) % 26] for letter in source)

    def code(by: str) -> Code:
        return Code("t", ('t = ""', "for c in s:", f"    t += chr((ord(c) - 97 + {by}) % 26 + 97)"))

    return Puzzle(
        reads=(word("s", letters=ALPHABET, shortest=3, longest=10),),
        task=f"s with every letter moved {k} places on in the alphabet, where a follows z",
        code=code(str(k)),
        answer=lambda s: shifted(s, k),
        wrong=(
            code(f"26 - {k}") if k != 13 else code("12"),
            Code("t", ('t = ""', "for c in s:", f"    t += chr(ord(c) + {k})")),
            code(str(k + 1)),
        ),
    )


@CATALOGUE.add(4, range(2, 6))
def runs(k: int) -> Puzzle:
    def answer(s: str) -> int:
        found, length = 0, 0
        for index, letter in enumerate(s):
            length = length + 1 if index and s[index - 1] == letter else 1
            found += length == k
        return found

    def code(test: str, start: str = "1") -> Code:
        body = (
            "r = m = 0",
            'p = ""',
            "for c in s:",
            f"    m = m + 1 if c == p else {start}",
            f"    r += m {test}",
            "    p = c",
        )
        return Code("r", body)

    return Puzzle(
        reads=(word("s", letters="ab", shortest=8, longest=20),),
        task=f"how many of the longest possible runs of equal letters in s have at least {k} letters",
        code=code(f"== {k}"),
        answer=answer,
        wrong=(code(f">= {k}"), code(f"== {k}", "0"), code(f"== {k - 1}")),
    )
