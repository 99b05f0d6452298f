"""From losses per token to the loss of an optimizer step: a weight for every token, so that the step's loss is a sum.

    token        1 / N                      N: loss tokens of the step
    sequence     1 / (R n_r)                R replies; n_r: loss tokens of the token's reply
    trajectory   1 / (T n_t)                T trajectories; n_t: loss tokens of the token's trajectory
    fixed        1 / (R L)                  L: `fixed_length` (Dr. GRPO: the longest reply that is allowed)

The weights are computed from the whole step before it is cut into passes and spread over processes, so the sums are
exact whatever the cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rla.training.data import TrainingSequence

Aggregation = Literal["token", "sequence", "trajectory", "fixed"]


def token_weights(
    sequences: Sequence[TrainingSequence], aggregation: Aggregation, *, fixed_length: int = 0
) -> list[list[float]]:
    """Per sequence of one optimizer step, the weight of each of its loss tokens; they add up to 1, but for `fixed`."""
    if aggregation == "token":
        total = sum(len(one.positions) for one in sequences)
        return [[1 / total] * len(one.positions) for one in sequences]
    units = [
        [(one.owner, 0) if aggregation == "trajectory" else (number, reply) for reply in one.reply_numbers()]
        for number, one in enumerate(sequences)
    ]
    sizes = Counter(unit for of_sequence in units for unit in of_sequence)
    if aggregation == "fixed":
        return [[1 / (len(sizes) * fixed_length)] * len(of_sequence) for of_sequence in units]
    return [[1 / (len(sizes) * sizes[unit]) for unit in of_sequence] for of_sequence in units]
