from symoptim.records.selection import Candidate, choose


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
