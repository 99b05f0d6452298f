"""Answers to questions of reasoning-gym, computed from the question alone and without the package."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from fractions import Fraction

Cell = tuple[int, int]
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def grid(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.split("\n")]
    return [line for line in lines if len(line) > 1 and all(len(cell) <= 2 for cell in line)]


def beside(cell: Cell) -> Iterator[Cell]:
    for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        yield cell[0] + down, cell[1] + right


def distances(begin: list[Cell], free: set[Cell]) -> dict[Cell, int]:
    found, queue = dict.fromkeys(begin, 0), deque(begin)
    while queue:
        cell = queue.popleft()
        for after in beside(cell):
            if after in free and after not in found:
                found[after] = found[cell] + 1
                queue.append(after)
    return found


def cells(rows: list[list[str]], *marks: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell in marks]


def count_primes(question: str) -> str:
    low, high = integers(question)[:2]
    return str(sum(n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(low, high + 1)))


def prime_factorization(question: str) -> str:
    number, factor, factors = integers(question)[0], 2, list[int]()
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return " \u00d7 ".join(map(str, factors))


def base_conversion(question: str) -> str:
    named = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
    base = r"(base-\d+|binary|octal|decimal|hexadecimal)"
    found = re.search(rf"convert the {base} number (\w+) to {base}", question)
    assert found
    of, to = (named.get(name) or int(name.removeprefix("base-")) for name in (found[1], found[3]))
    number, written = int(found[2], of), ""
    while number:
        number, digit = divmod(number, to)
        written = DIGITS[digit] + written
    return written


def dice(question: str) -> str:
    sides = [int(one) for one in re.findall(r"1d(\d+)", question.partition("What are")[0])]
    least = int(re.findall(r"rolling (\d+) or", question)[0])
    ways = Counter({0: 1})
    for side in sides:
        ways = Counter(
            {total: sum(ways[total - face] for face in range(1, side + 1)) for total in range(max(ways) + side + 1)}
        )
    return str(Fraction(sum(count for total, count in ways.items() if total >= least), math.prod(sides)))


def largest_island(question: str) -> str:
    land, largest = set(cells(grid(question.partition("binary matrix grid:")[2]), "1")), 0
    while land:
        island = distances([next(iter(land))], land)
        largest, land = max(largest, len(island)), land - island.keys()
    return str(largest)


def rotten_oranges(question: str) -> str:
    rows = grid(question.rpartition("fresh orange:")[2])
    fresh, rotten = set(cells(rows, "1")), cells(rows, "2")
    found = distances(rotten, fresh)
    return "-1" if fresh - found.keys() else str(max(found.values(), default=0))


def binary_alternation(question: str) -> str:
    bits = re.findall(r"alternating: ([01]+)", question)[0]
    swaps = []
    for first in (0, 1):
        wanted = "".join(str((first + place) % 2) for place in range(len(bits)))
        if wanted.count("1") == bits.count("1"):
            swaps.append(sum(one != other for one, other in zip(bits, wanted, strict=True)) // 2)
    return str(min(swaps, default=-1))


def course_schedule(question: str) -> str:
    needs = [(int(a), int(b)) for a, b in re.findall(r"\((\d+), (\d+)\)", question)]
    while True:
        blocked = {course for course, _ in needs}
        left = [(course, before) for course, before in needs if before in blocked]
        if len(left) == len(needs):
            return str(not needs)
        needs = left


def spiral_matrix(question: str) -> str:
    rows, found = grid(question.partition("spiral order?")[2]), list[str]()
    while rows:
        found += rows[0]
        rows = [list(row) for row in zip(*rows[1:], strict=True)][::-1]
    return " ".join(found)


def game_of_life(question: str) -> str:
    steps = re.findall(r"(\d+) (?:step|iteration|time|generation)", question)
    rows = json.loads(re.findall(r"\n\n(\[\[.*\]\])\.", question, re.DOTALL)[0])
    height, width = len(rows), len(rows[0])
    around = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]
    for _ in range(int(steps[0]) if steps else 1):
        alive = [
            [sum(rows[(r + down) % height][(c + right) % width] for down, right in around) for c in range(width)]
            for r in range(height)
        ]
        rows = [[int(n == 3 or (n == 2 and rows[r][c])) for c, n in enumerate(row)] for r, row in enumerate(alive)]
    return json.dumps(rows, separators=(",", ":"))


def ab(question: str) -> str:
    tokens = question.partition("following program:\n\n")[2].partition("\n")[0].split()
    rules = {("A#", "#A"): [], ("A#", "#B"): ["#B", "A#"], ("B#", "#A"): ["#A", "B#"], ("B#", "#B"): []}
    place = 0
    while place < len(tokens) - 1:
        pair = (tokens[place], tokens[place + 1])
        if pair in rules:
            tokens[place : place + 2] = rules[pair]
            place = max(place - 1, 0)
        else:
            place += 1
    return " ".join(tokens)


SOLVERS: dict[str, Callable[[str], str]] = {
    "ab": ab,
    "base_conversion": base_conversion,
    "binary_alternation": binary_alternation,
    "count_bits": lambda question: str(integers(question)[-1].bit_count()),
    "count_primes": count_primes,
    "course_schedule": course_schedule,
    "dice": dice,
    "game_of_life": game_of_life,
    "gcd": lambda question: str(math.gcd(*integers(question.partition(":")[2]))),
    "largest_island": largest_island,
    "lcm": lambda question: str(math.lcm(*integers(question.partition(":")[2]))),
    "prime_factorization": prime_factorization,
    "rotten_oranges": rotten_oranges,
    "spell_backward": lambda question: re.findall(r"nus\): (\S+)", question)[0][::-1],
    "spiral_matrix": spiral_matrix,
    "word_sequence_reversal": lambda q: ", ".join(q.partition("list of words: ")[2].strip().split(", ")[::-1]),
}
