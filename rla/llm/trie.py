"""A token trie: the set of token sequences that a restricted completion may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class TokenTrie:
    """Built from token sequences, each ended by its own stop token; nodes are plain dictionaries id -> node."""

    __slots__ = ("root",)

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        self.root: dict[int, dict] = {}
        for sequence in sequences:
            node = self.root
            for token in sequence:
                node = node.setdefault(token, {})

    def allowed(self, prefix: Sequence[int]) -> list[int]:
        """Sorted ids that may follow `prefix`; empty where the prefix is complete. KeyError if it is no path."""
        node = self.root
        for token in prefix:
            node = node[token]
        return sorted(node)
