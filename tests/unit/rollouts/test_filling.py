"""Dynamic sampling: how many tasks a round plays, and when it is enough."""

from __future__ import annotations

from rla.rollouts.play import filling_rounds, is_mixed


def group(*outcomes: int, broken: int = 0) -> list[dict[str, object]]:
    played = [{"outcome": outcome, "stop_reason": "won" if outcome > 0 else "max_steps"} for outcome in outcomes]
    return played + [{"outcome": -1, "stop_reason": "env_error"}] * broken


def test_a_group_is_mixed_where_it_was_won_and_lost() -> None:
    assert is_mixed(group(1, -1, -1))
    assert not is_mixed(group(1, 1)) and not is_mixed(group(-1)) and not is_mixed([])
    assert not is_mixed(group(1, 1, broken=1))  # an episode that the environment broke is no loss


def test_a_round_is_as_large_as_the_rate_so_far_asks_for() -> None:
    # 3 of 8 are mixed, 5 are missing: at (3 + 1) / (8 + 2) it takes 12.5. None of 8: 8 * 10 / 1.
    assert len(rounds({0, 1, 2}, first=8, reserve=90)[1]) == 13
    assert len(rounds(set(), first=8, reserve=90)[1]) == 80


def rounds(mixed: set[int], *, first: int = 4, pending: int = 0, reserve: int = 20) -> list[list[int]]:
    """Groups 0 to `first` - 1 are active, then come pending ones, then the reserve."""
    start = first + pending
    return list(filling_rounds(range(start), range(first), range(start, start + reserve), lambda index: index in mixed))


def test_nothing_more_is_played_where_all_are_mixed_or_nothing_is_left() -> None:
    assert rounds({0, 1, 2, 3}) == [[0, 1, 2, 3]]
    assert rounds(set(), reserve=0) == [[0, 1, 2, 3]]


def test_rounds_follow_until_the_target_is_reached() -> None:
    # Two of four mixed, two missing: 2 * 6 / 3 = 4 more. One of those: 3 of 8, 1 * 10 / 4 = 3 more, and one of them is.
    assert rounds({0, 1, 4, 9}) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_the_budget_ends_it() -> None:
    assert rounds(set(), reserve=5) == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]


def test_pending_groups_are_played_and_do_not_count() -> None:
    """They train only where they are accepted: four active ones are asked for, however many pending ones are mixed."""
    assert rounds({0, 1, 2, 3}, pending=2) == [[0, 1, 2, 3, 4, 5]]
    assert rounds({0, 1, 2, 4, 5}, pending=2)[1] == [6, 7]  # 1 * 6 / 4


def test_a_round_is_decided_when_the_one_before_has_ended() -> None:
    asked: list[int] = []
    found = filling_rounds([0, 1], [0, 1], [2, 3], lambda index: bool(asked.append(index)))
    assert next(found) == [0, 1] and asked == []
    assert next(found) == [2, 3] and asked == [0, 1]
