"""Sequences cut to a size.

A row's branches become several sequences, so that a forward pass keeps its budget. Branches do not see each other, so
the pieces of a row give the losses and, added up, the gradient of the whole row. What a piece costs anew is its prompt.

A text that is longer than a limit loses the replies that end beyond it: the later steps of an episode, a judgement
that is too long. A reply sees only what comes before it, so those that remain train as they would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rla.training.data import TrainingSequence, images_within


def split_branches(sequence: TrainingSequence, *, budget: int) -> list[TrainingSequence]:
    """Sequences of at most `budget` tokens, each the prompt with some of the branches, in their order.

    A branch that does not fit beside the prompt stands alone with it. A sequence without branches is never cut.
    """
    if len(sequence.token_ids) <= budget:
        return [sequence]
    groups: list[list[int]] = []
    used = 0
    for number, (start, end) in enumerate(sequence.branches):
        if groups and used + end - start <= budget:
            groups[-1].append(number)
            used += end - start
        else:
            groups.append([number])
            used = sequence.prefix + end - start
    return [only_branches(sequence, group) for group in groups] or [sequence]


def without_long_replies(sequence: TrainingSequence, *, max_tokens: int) -> TrainingSequence | None:
    """The replies that end within the first `max_tokens` tokens of their text; None where there is none.

    A reply remains whole or not at all.
    """
    if sequence.longest <= max_tokens:
        return sequence
    if sequence.branches:
        fit = [n for n, (start, end) in enumerate(sequence.branches) if sequence.prefix + end - start <= max_tokens]
        return only_branches(sequence, fit) if fit else None
    replies = sequence.reply_numbers()
    late = {reply for reply, position in zip(replies, sequence.positions, strict=True) if position >= max_tokens}
    kept = [index for index, reply in enumerate(replies) if reply not in late]
    if not kept:
        return None
    count = sequence.positions[kept[-1]] + 1
    images = images_within(sequence.images, count)
    return replace(only_tokens(sequence, kept), token_ids=sequence.token_ids[:count], images=images)


def only_branches(sequence: TrainingSequence, numbers: Sequence[int]) -> TrainingSequence:
    """The prompt and the branches of these numbers. One branch alone is a plain text."""
    token_ids = sequence.token_ids[: sequence.prefix]
    branches: list[tuple[int, int]] = []
    kept: list[int] = []  # loss tokens
    positions: list[int] = []
    for start, end in (sequence.branches[number] for number in numbers):
        own = [index for index, position in enumerate(sequence.positions) if start <= position < end]
        positions += [sequence.positions[index] - start + len(token_ids) for index in own]
        kept += own
        branches.append((len(token_ids), len(token_ids) + end - start))
        token_ids = token_ids + sequence.token_ids[start:end]
    return replace(
        only_tokens(sequence, kept),
        token_ids=token_ids,
        positions=positions,
        branches=tuple(branches) if len(branches) > 1 else (),
    )


def only_tokens(sequence: TrainingSequence, kept: Sequence[int]) -> TrainingSequence:
    """The same tokens, of whose loss tokens those of these numbers remain."""
    replies = sequence.reply_numbers()
    return replace(
        sequence,
        positions=[sequence.positions[index] for index in kept],
        logp=[sequence.logp[index] for index in kept],
        allowed=[sequence.allowed[index] for index in kept],
        advantages=[sequence.advantages[index] for index in kept],
        replies=[replies[index] for index in kept],
    )
