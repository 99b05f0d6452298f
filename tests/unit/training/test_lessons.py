"""An episode teaches few judgements of each kind, drawn evenly."""

from __future__ import annotations

import random
from collections import Counter

from rla.training.warm_start import few_alike

KINDS = ("bad", "bad", "good", "bad", "bad", "fair")


def test_of_each_kind_at_most_so_many_are_kept_in_order() -> None:
    kept = few_alike(random.Random(0), KINDS, 2)
    assert Counter(KINDS[place] for place in kept) == {"bad": 2, "good": 1, "fair": 1}
    assert kept == sorted(set(kept))


def test_which_ones_is_drawn_evenly() -> None:
    rng = random.Random(1)
    kept = Counter(place for _ in range(2000) for place in few_alike(rng, KINDS, 1))
    assert kept[2] == kept[5] == 2000
    assert all(400 < kept[place] < 600 for place in (0, 1, 3, 4))  # a quarter each; five standard deviations are 97


def test_zero_keeps_all() -> None:
    assert few_alike(random.Random(0), KINDS, 0) == [0, 1, 2, 3, 4, 5]
