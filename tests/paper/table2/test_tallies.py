from symoptim.paper.table2 import tallies
from tests.paper.table2.test_views import a_summary
from tests.support.recorded import a_recorded_run


def test_rates_are_counted_once_per_repeat() -> None:
    runs = [
        a_recorded_run(repeat=k, errors=[0.1], schedule=schedule)._replace(configuration={"rate": rate})
        for k, rate in enumerate((0.01, 0.01, 0.001))
        for schedule in ("exponential", "bold")
    ]
    rates, rows = tallies.chosen_rates(a_summary(runs, rates=[0.001, 0.01]))
    assert rates == [0.01, 0.001]
    (row,) = [row for row in rows if any(row.counts)]
    assert (row.network, row.update, row.counts) == ("2-layer Arch1", "SM", (2, 1))


def test_endings_say_when_and_why() -> None:
    runs = [
        a_recorded_run(repeat=0, errors=[0.1] * 26, reason="it got worse"),
        a_recorded_run(repeat=1, errors=[0.1] * 30, reason="it got worse"),
        a_recorded_run(repeat=2, errors=[0.1] * 9, reason=None),
        a_recorded_run(repeat=3, errors=[], reason="every candidate rate diverged", diverged=True),
    ]
    (row,) = tallies.endings(a_summary(runs))
    assert row[2:5] == (26, 28, 30)
    assert row.reasons == "2 it got worse; 1 every candidate rate diverged"
