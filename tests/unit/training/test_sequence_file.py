"""Stored sequences are the sequences, and what a stage needs to know of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rla.training.data import TrainingSequence
from rla.training.sequence_file import ROWS, StoredSequences, write_sequences
from tests.unit.training.builders import random_sequences


def test_what_is_written_is_read_in_any_order(tmp_path: Path) -> None:
    sequences = random_sequences(2 * ROWS + 3)
    sequences[1] = replace(sequences[1], branches=((2, 5), (5, 6)), replies=[0, 0, 1, 1], owner="t")
    facts = write_sequences(tmp_path / "s", iter(sequences), max_tokens=100)
    stored = StoredSequences(tmp_path / "s", facts)
    assert list(stored) == sequences
    assert stored[ROWS] == sequences[ROWS]
    assert stored[-1] == sequences[-1]
    with pytest.raises(IndexError):
        stored[len(sequences)]
    assert facts.lengths == [len(one.token_ids) for one in sequences]
    assert facts.loss_tokens == [4] * len(sequences)
    assert facts.highest == max(max(one.token_ids) for one in sequences)
    assert (facts.signal, facts.too_long) == (True, 0)


def test_the_digest_tells_sequences_apart(tmp_path: Path) -> None:
    sequences = random_sequences(5)
    changed = [*sequences[:4], replace(sequences[4], advantages=[0.0, 0.0, 0.0, 1e-9])]
    first, again, other = (
        write_sequences(tmp_path / "s", one, max_tokens=100).digest for one in (sequences, sequences, changed)
    )
    assert first == again != other


def test_longer_ones_are_counted_and_left_out(tmp_path: Path) -> None:
    short = TrainingSequence(token_ids=[1, 2], positions=[1], logp=[-1.0], allowed=[[]], advantages=[0.0])
    long = replace(short, token_ids=[1, 2, 9], positions=[2], advantages=[1.0])
    facts = write_sequences(tmp_path / "s", [long, short], max_tokens=2)
    assert (facts.too_long, facts.lengths, facts.highest, facts.signal) == (1, [2], 2, False)
    assert list(StoredSequences(tmp_path / "s", facts)) == [short]


def test_no_sequence_at_all(tmp_path: Path) -> None:
    facts = write_sequences(tmp_path / "s", [], max_tokens=2)
    assert (facts.lengths, facts.signal) == ([], False)
    assert list(StoredSequences(tmp_path / "s", facts)) == []
