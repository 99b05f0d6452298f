"""What calls of a stage measured, joined and told in a line."""

from __future__ import annotations

from rla_programs.execution.figures import statuses_of

from rla.metrics.custom import joined_figures, told_figures

FIRST = {
    **{"calls": 4, "calls_error": 1, "calls_ok": 2, "calls_malformed": 1, "runs": 3},
    **{"run_seconds_mean": 0.2, "run_seconds_p99": 0.5, "call_seconds_mean": 0.3, "call_seconds_p99": 0.6},
}
SECOND = {
    **{"calls": 1, "calls_ok": 1, "runs": 1},
    **{"run_seconds_mean": 1.0, "run_seconds_p99": 1.0, "call_seconds_mean": 1.3, "call_seconds_p99": 1.3},
}


def test_counts_add_up_means_are_weighed_and_the_longest_stays() -> None:
    """(3 * 0.2 + 1 * 1.0) / 4 of programs, (4 * 0.3 + 1 * 1.3) / 5 of calls."""
    found = joined_figures([FIRST, SECOND])
    assert (found["calls"], found["calls_ok"], found["calls_malformed"], found["runs"]) == (5, 3, 1, 4)
    assert round(found["run_seconds_mean"], 6) == 0.4 and round(found["call_seconds_mean"], 6) == 0.5
    assert (found["run_seconds_p99"], found["call_seconds_p99"]) == (1.0, 1.3)


def test_calls_that_ran_no_program_have_no_seconds_of_programs() -> None:
    alone = {"calls": 2, "calls_malformed": 2, "call_seconds_mean": 0.1, "call_seconds_p99": 0.1}
    assert joined_figures([alone]) == alone
    assert round(joined_figures([alone, FIRST])["run_seconds_mean"], 6) == 0.2


def test_nothing_is_joined_to_nothing() -> None:
    assert joined_figures([]) == {}


def test_statuses_are_told_apart_from_seconds_of_calls() -> None:
    assert statuses_of(FIRST) == {"error": 1, "malformed": 1, "ok": 2}


def test_the_line_says_how_calls_ended_and_how_long_they_took() -> None:
    assert told_figures(FIRST) == (
        "4 calls of the tool: 1 error, 1 malformed, 2 ok; a program ran 0.2 s in the mean, 99% of them at most 0.5 s; "
        "an episode waited 0.3 s in the mean, 99% of them at most 0.6 s"
    )


def test_pages_and_machines_are_told_and_add_up() -> None:
    pages = {"pages": 12.0, "pages_lost": 2.0, "pages_given_up": 1.0}
    assert told_figures(pages) == "12 pages opened, 2 lost; 1 episodes ended for that"
    assert joined_figures([pages, pages]) == {"pages": 24.0, "pages_lost": 4.0, "pages_given_up": 2.0}
    assert told_figures({"machines": 4.0, "machine_start_s": 6.0}) == "4 machines started, 1.5 s in the mean"
