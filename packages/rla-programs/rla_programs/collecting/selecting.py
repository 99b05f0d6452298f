"""Selects conversations: rejection by outcome, one of similar ones, the best of each question.

    better = higher quality, then fewer characters of replies, then the smaller id
    alike  = |A and B| / |A or B| of the runs of RUN words in the replies of two conversations, above a limit

Conversations without a quality come after those with one. Questions are equal if the first user messages are equal up
to white space, whatever the names of their tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rla.envs.chat_prompts import single_spaced
from rla_programs.collecting.conversations import Conversation
from rla_programs.collecting.params import CollectConfig

RUN = 3  # words


def _question_key(conversation: Conversation) -> str:
    """Equal for equal questions."""
    asked = next((one.content for one in conversation.messages if one.role == "user"), "")
    return single_spaced(asked)


def _best_first(found: Iterable[Conversation]) -> list[Conversation]:
    """From best to worst, in an order that does not depend on the input order."""

    def order(one: Conversation) -> tuple[bool, float, int, str]:
        length = sum(len(reply.content) + len(reply.tool_calls or "") for reply in one.replies())
        return one.quality is None, -(one.quality or 0.0), length, one.conversation_id

    return sorted(found, key=order)


def kept_of_question(found: Iterable[Conversation], config: CollectConfig) -> list[Conversation]:
    """The conversations to keep for one question, the best first."""
    kept: list[Conversation] = []
    known: list[frozenset[tuple[str, ...]]] = []
    for one in _best_first(found):
        if len(kept) == config.keep:
            break
        runs = word_runs(one)
        if (config.outcome == "won" and one.outcome == -1) or any(
            likeness(runs, other) > config.alike or (runs == other and config.alike < 1) for other in known
        ):
            continue
        kept.append(one)
        known.append(runs)
    return kept


def kept_of_all(found: Iterable[Conversation], config: CollectConfig) -> list[Conversation]:
    """The conversations to keep for many questions, in the order of their ids."""
    by_question: defaultdict[str, list[Conversation]] = defaultdict(list)
    for one in {each.conversation_id: each for each in found}.values():
        by_question[_question_key(one)].append(one)
    ranked = _best_first(one for asked in by_question.values() for one in kept_of_question(asked, config))
    counted: Counter[str] = Counter()
    kept = []
    for one in ranked:
        counted[one.source] += 1
        if not config.keep_source or counted[one.source] <= config.keep_source:
            kept.append(one)
    return sorted(kept, key=lambda one: one.conversation_id)


def word_runs(conversation: Conversation) -> frozenset[tuple[str, ...]]:
    """The runs of RUN words in its replies; with fewer words, the one shorter run."""
    words = [word for one in conversation.replies() for word in f"{one.content} {one.tool_calls or ''}".split()]
    return frozenset(tuple(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1)))


def likeness(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """The share of runs in common, from 0 to 1."""
    return len(one & other) / len(one | other)


def grouped_by_text(texts: Sequence[str]) -> list[list[int]]:
    """The indices of equal texts, up to white space, in the order of the first of each."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(single_spaced(text), []).append(place)
    return list(places.values())
