"""Whether a changed task enters the pool, by the accuracy of the current policy on it.

    harder:  alpha_low < acc(q') < acc(q)
    easier:  acc(q) < acc(q') < alpha_high   and acc(q') > 0

All bounds are strict. acc(q) was measured when the change was asked for, acc(q') on the next iteration's
rollouts. Source: RLAnything, acceptance of adapted tasks.
"""

from __future__ import annotations

from typing import NamedTuple

from rla.records import Direction


class Verdict(NamedTuple):
    """Accepted or not, and why in one sentence."""

    accepted: bool
    reason: str


def verdict(
    direction: Direction, parent_accuracy: float, accuracy: float, *, alpha_low: float, alpha_high: float
) -> Verdict:
    """The rule above; the reason names the bound that failed, or the comparison that held."""
    if direction is Direction.HARDER:
        if accuracy <= alpha_low:
            return Verdict(False, f"too hard: accuracy {accuracy:.3f} is not above {alpha_low:.3f}")
        if accuracy >= parent_accuracy:
            return Verdict(False, f"not harder: accuracy {accuracy:.3f} is not below {parent_accuracy:.3f}")
        return Verdict(True, f"harder: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")
    if accuracy <= 0.0:
        return Verdict(False, "never won")
    if accuracy <= parent_accuracy:
        return Verdict(False, f"not easier: accuracy {accuracy:.3f} is not above {parent_accuracy:.3f}")
    if accuracy >= alpha_high:
        return Verdict(False, f"too easy: accuracy {accuracy:.3f} is not below {alpha_high:.3f}")
    return Verdict(True, f"easier: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")
