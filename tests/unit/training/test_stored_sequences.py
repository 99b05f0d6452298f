"""Stored sequences are the sequences, and what a stage needs to know of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rla.training.sequences import StoredSequences, TrainingSequence, write_sequences
from tests.unit.training.builders import random_sequences
from tests.unit.training.test_packing import forked


def test_what_is_written_is_read_in_any_order(tmp_path: Path) -> None:
    sequences = random_sequences(35)
    sequences[1] = replace(sequences[1], branches=((2, 5), (5, 6)), replies=[0, 0, 1, 1], owner="t")
    stats = write_sequences(tmp_path / "s", iter(sequences), max_tokens=100, budget=100)
    stored = StoredSequences(tmp_path / "s", stats)
    assert list(stored) == sequences
    assert stored[16] == sequences[16]
    assert stored[-1] == sequences[-1]
    with pytest.raises(IndexError):
        stored[len(sequences)]
    assert stats.lengths == [len(one.token_ids) for one in sequences]
    assert stats.loss_tokens == [4] * len(sequences)
    assert stats.highest == max(max(one.token_ids) for one in sequences)
    assert (stats.signal, stats.replies_too_long) == (True, 0)


def test_the_digest_tells_sequences_apart(tmp_path: Path) -> None:
    sequences = random_sequences(5)
    changed = [*sequences[:4], replace(sequences[4], advantages=[0.0, 0.0, 0.0, 1e-9])]
    first, again, other = (
        write_sequences(tmp_path / "s", one, max_tokens=100, budget=100).digest
        for one in (sequences, sequences, changed)
    )
    assert first == again != other


def test_longer_ones_are_counted_and_left_out(tmp_path: Path) -> None:
    short = TrainingSequence(token_ids=[1, 2], positions=[1], logp=[-1.0], allowed=[[]], advantages=[0.0])
    long = replace(short, token_ids=[1, 2, 9], positions=[2], advantages=[1.0])
    stats = write_sequences(tmp_path / "s", [long, short], max_tokens=2, budget=100)
    assert (stats.replies_too_long, stats.lengths, stats.highest, stats.signal) == (1, [2], 2, False)
    assert list(StoredSequences(tmp_path / "s", stats)) == [short]


def test_replies_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    """Of six replies: the second step of an episode is too long, both of another episode, and one of two judgements."""
    episode = TrainingSequence(
        token_ids=[1, 2, 3, 4],
        positions=[1, 3],
        logp=[-1.0] * 2,
        allowed=[[], []],
        advantages=[1.0, 2.0],
        replies=[0, 1],
    )
    late = replace(episode, token_ids=[1, 2, 3, 4, 5], positions=[3, 4])
    judged = replace(forked(2, 1, 2), replies=[0, 1, 1])
    stats = write_sequences(tmp_path / "s", [episode, late, judged], max_tokens=3, budget=100)
    assert (stats.pieces, stats.replies, stats.replies_too_long) == ([1, 1], 6, 4)
    assert [one.token_ids for one in StoredSequences(tmp_path / "s", stats)] == [[1, 2], judged.token_ids[:3]]


def test_no_sequence_at_all(tmp_path: Path) -> None:
    stats = write_sequences(tmp_path / "s", [], max_tokens=2, budget=100)
    assert (stats.lengths, stats.signal) == ([], False)
    assert list(StoredSequences(tmp_path / "s", stats)) == []


def test_branches_beyond_the_budget_are_several_sequences_of_one_group(tmp_path: Path) -> None:
    rows = [forked(3, 2, 1, 3), *random_sequences(1), forked(2, 2, 2)]
    stats = write_sequences(tmp_path / "s", rows, max_tokens=100, budget=6)
    assert stats.pieces == [2, 1, 1]
    assert stats.groups(by_task=False) == [[0, 1], [2], [3]]
    assert stats.lengths == [6, 6, len(rows[1].token_ids), 6]
    assert (stats.rows, stats.longest) == ([2, 1, 1, 2], [5, 6, len(rows[1].token_ids), 4])
    assert stats.loss_tokens == [3, 3, 4, 4]
    stored = StoredSequences(tmp_path / "s", stats)
    assert [one.token_ids[:3] for one in (stored[0], stored[1])] == [rows[0].token_ids[:3]] * 2
    whole = write_sequences(tmp_path / "t", rows, max_tokens=100, budget=100)
    assert (whole.pieces, whole.digest) == ([1, 1, 1], stats.digest)


def test_the_sequences_of_a_task_are_known_however_they_are_stored(tmp_path: Path) -> None:
    tasks = "abab"
    sequences = [replace(one, task=task) for one, task in zip(random_sequences(4), tasks, strict=True)]
    stats = write_sequences(tmp_path / "s", sequences, max_tokens=100, budget=100)
    assert stats.groups(by_task=True) == [[0, 2], [1, 3]]
