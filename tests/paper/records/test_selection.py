from symoptim.paper.records.runs import Epoch, RecordedRun
from symoptim.paper.records.selection import Candidate, candidate, choose, rank


def test_the_lowest_error_wins() -> None:
    assert (
        choose([Candidate(1e-2, 0.2, False), Candidate(1e-3, 0.1, False), Candidate(1e-4, 0.3, False)])
        == 1e-3
    )


def test_the_larger_rate_wins_a_tie_whatever_the_order() -> None:
    tied = [Candidate(1e-4, 0.1, False), Candidate(1e-2, 0.1, False), Candidate(1e-3, 0.1, False)]
    assert choose(tied) == choose(tied[::-1]) == 1e-2


def test_a_diverged_candidate_never_wins() -> None:
    assert choose([Candidate(1e-2, 0.0, True), Candidate(1e-3, 0.4, False)]) == 1e-3


def test_nothing_is_chosen_when_all_diverged() -> None:
    assert choose([Candidate(1e-2, 0.9, True), Candidate(1e-3, 0.9, True)]) is None


def test_rates_are_ranked_by_error_larger_ones_first_on_a_tie_and_without_those_that_diverged() -> None:
    errors = {1e-4: 0.2, 1e-3: 0.1, 1e-2: 0.2, 0.1: 0.3}
    candidates = [Candidate(rate, error, False) for rate, error in errors.items()]
    assert rank([*candidates, Candidate(1.0, 0.0, True)]) == [1e-3, 1e-2, 1e-4, 0.1]
    assert rank([]) == []


def test_a_recorded_run_stands_by_its_last_epoch() -> None:
    curve = tuple(Epoch(k, 0.1, 1.0, 0.5, error, 0.6) for k, error in ((1, 0.2), (2, 0.4)))
    run = RecordedRun("one", {"rate": 0.3}, {}, "enough", False, curve)
    assert candidate(run) == Candidate(0.3, 0.4, False)
    assert candidate(run._replace(diverged=True)).diverged
