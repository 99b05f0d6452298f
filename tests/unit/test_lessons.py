"""An episode teaches few judgements of each kind, in the order in which they were made."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

from stages.lessons import few_alike

# Views are passed through as they are: numbers stand for them.
JUDGED = cast("list[tuple[Any, str]]", [(0, "bad"), (1, "bad"), (2, "good"), (3, "bad"), (4, "bad"), (5, "fair")])


def test_of_each_reply_at_most_so_many_are_kept_in_order() -> None:
    kept = few_alike(random.Random(0), JUDGED, 2)
    assert Counter(reply for _, reply in kept) == {"bad": 2, "good": 1, "fair": 1}
    assert kept == sorted(kept)
    assert set(kept) <= set(JUDGED)


def test_which_ones_is_drawn_evenly() -> None:
    rng = random.Random(1)
    kept = Counter(view for _ in range(2000) for view, _ in few_alike(rng, JUDGED, 1))
    assert kept[2] == kept[5] == 2000
    assert all(400 < kept[view] < 600 for view in (0, 1, 3, 4))  # a quarter each; five standard deviations are 97


def test_zero_keeps_all() -> None:
    assert few_alike(random.Random(0), JUDGED, 0) == JUDGED
