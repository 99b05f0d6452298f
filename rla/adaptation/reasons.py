"""What went wrong, condensed without a language model: the reward model's most frequent reasons for -1.

The judge's text is untrusted data. It is cut into sentences, cleaned of control characters and of the
verdict itself, counted and cut to length; nothing in it is interpreted. Reasons that differ only in numbers
("cabinet 1", "cabinet 2") count as one, shown in the wording that came first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rla.folding import printable
from rla.thoughts import after_thinking

_VERDICT = re.compile(r"\\boxed\s*\{[^{}]*\}|\bscore\s*:?\s*[+-]?\s*1\b|[+-]\s*1\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|\n+")
_NUMBER = re.compile(r"\d+")
MAX_REASON = 160  # characters


def critique(texts: Iterable[str], *, reasons: int = 3) -> str:
    """The `reasons` most frequent reasons, as "reason (12 of 40)" joined by "; "; "" where there is none.

    Each text counts a reason once. Ties are shown in order of first appearance.
    """
    counts: Counter[str] = Counter()
    wording: dict[str, str] = {}
    total = 0
    for text in texts:
        total += 1
        found = {_key(sentence): sentence for sentence in reversed(sentences(text))}
        for key, sentence in reversed(found.items()):
            counts[key] += 1
            wording.setdefault(key, sentence)
    return "; ".join(f"{wording[key]} ({count} of {total})" for key, count in counts.most_common(reasons))


def sentences(text: str) -> list[str]:
    """The sentences of a judgement, one line each, without verdict and control characters, cut to length."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(_VERDICT.sub(" ", printable(after_thinking(text)))))
    return [part[:MAX_REASON].rstrip() for part in parts if any(sign.isalpha() for sign in part)]


def _key(sentence: str) -> str:
    return _NUMBER.sub("#", sentence.casefold())
