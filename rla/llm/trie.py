"""A token trie: the set of token sequences that a restricted completion may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class TokenTrie:
    """Built from token sequences, each ended by its own stop token; nodes are plain dictionaries id -> node.

    `least` and `most` are the ends of its ids, 0 where it is empty.
    """

    __slots__ = ("least", "most", "root")

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        self.root: dict[int, dict] = {}
        self.least = self.most = 0
        for sequence in sequences:
            node = self.root
            self.least, self.most = min(self.least, *sequence, 0), max(self.most, *sequence, 0)
            for token in sequence:
                node = node.setdefault(token, {})

    def allowed(self, prefix: Sequence[int]) -> list[int]:
        """Sorted ids that may follow `prefix`; empty where the prefix is complete. KeyError if it is no path."""
        node = self.root
        for token in prefix:
            node = node[token]
        return sorted(node)
