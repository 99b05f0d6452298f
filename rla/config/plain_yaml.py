"""YAML as plain data: what JSON can hold, each key once, of bounded size. Anyone may have written the file.

Dates are texts, because no key takes a date. Aliases count as often as they are used: an alias bomb is a large document
whose text is small. All of this is found while the document is composed, before anything is made of it.
"""

from __future__ import annotations

from typing import Any

import yaml

LONGEST = 1 << 20  # characters of a file
MOST_NODES = 100_000  # of a document, those of aliases each time
DEEPEST = 40
SHOWN = 60  # characters of a key
PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
TEXTS = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"}


class PlainLoader(yaml.SafeLoader):
    """A SafeLoader that refuses what is not plain, with the line."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[int, int] = {}  # of nodes that are whole, by identity

    def compose_node(self, parent: Any, index: Any) -> Any:
        again, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise unfit(f"nested deeper than {DEEPEST} levels", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not again:
            self._sizes[id(node)] = self._size(node)
        elif id(node) not in self._sizes:
            raise unfit("it contains itself", mark)
        if max(self._sizes[id(node)], len(self._sizes)) > MOST_NODES:
            raise unfit(f"it has more than {MOST_NODES} entries", mark)
        return node

    def _size(self, node: Any) -> int:
        """The nodes below, and the node itself. Raises MarkedYAMLError for one that is not plain."""
        if node.tag not in PLAIN:
            raise unfit(f"{node.tag[:SHOWN]} is not possible here", node.start_mark)
        if isinstance(node, yaml.MappingNode):
            refuse_odd_keys(node)
            return 1 + sum(self._sizes[id(each)] for pair in node.value for each in pair)
        if isinstance(node, yaml.SequenceNode):
            return 1 + sum(self._sizes[id(each)] for each in node.value)
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in node.value):
            raise unfit("a text holds a character that no text has", node.start_mark)
        return 1


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag in PLAIN]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def unfit(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def refuse_odd_keys(node: Any) -> None:
    """Raises MarkedYAMLError for a key that is there twice or is no text: the last one would win silently."""
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in TEXTS:
            raise unfit("a key must be a text", key.start_mark)
        if key.value in seen:
            raise unfit(f"the key {key.value[:SHOWN]!r} is there twice", key.start_mark)
        seen.add(key.value)


def plain_data(text: str) -> Any:
    """What a YAML text holds: mappings with texts as keys, lists, texts, numbers, truth values and nothing.

    Raises YAMLError for all else.
    """
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"longer than {LONGEST} characters")
    loader = PlainLoader(text)
    try:
        return loader.get_single_data()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # `!!int x`, a huge number
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    finally:
        loader.dispose()


def yaml_flaw(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """What is wrong, and in which line, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None else f"{error.problem}, line {mark.line + 1}"
    return str(error).splitlines()[0]
