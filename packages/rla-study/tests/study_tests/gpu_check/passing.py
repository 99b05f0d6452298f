"""The part `tests`: tests/gpu, and how many of them passed."""

from __future__ import annotations

from collections import Counter

import pytest

from study_tests.gpu_check.call import Call, measure


class Outcomes:
    """A plugin that counts, and names what failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.outcome == "failed":
            self.failed.append(report.nodeid.rpartition("::")[2])


def tests(call: Call) -> None:
    outcomes = Outcomes()
    pytest.main(["tests/gpu", "-q", "-p", "no:cacheprovider"], plugins=[outcomes])
    call.add(**{name: outcomes.counts[name] for name in ("passed", "failed", "skipped")}, names=outcomes.failed)
    if outcomes.failed or not outcomes.counts:
        raise SystemExit(f"{len(outcomes.failed)} tests failed")


if __name__ == "__main__":
    measure(tests)
