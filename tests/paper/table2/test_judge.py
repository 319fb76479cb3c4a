import random

import pytest

from symoptim.paper.table2.claims import CLAIMS, MARGIN, Claim, Comparison, EndsBy, NotTested
from symoptim.paper.table2.judge import Judgment, judge
from symoptim.paper.table2.published import TABLE2, Key
from tests.support.recorded import a_recorded_run

A, B, C = (Key(2, "bold", "arch2", update) for update in ("b-sgd", "sm", "un"))


def sample(mean: float, deviation: float = 0.0005, *, seed: int = 0, n: int = 10) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(mean, deviation) for _ in range(n)]


def verdict_on(evidence, samples=None, runs=()) -> Judgment:
    (judgment,) = judge([Claim(1, "a claim", evidence)], samples or {}, runs)
    return judgment


SAMPLES = {A: sample(0.020), B: sample(0.018, seed=1), C: sample(0.0201, seed=2)}


def test_a_claim_whose_comparisons_all_favor_it_holds() -> None:
    judgment = verdict_on((Comparison("mean", B, A), Comparison("mean", B, C)), SAMPLES)
    assert (judgment.verdict, judgment.why) == ("held", "2 of 2 comparisons favor it.")


def test_a_single_contradiction_is_enough_not_to_hold() -> None:
    judgment = verdict_on((Comparison("mean", B, A), Comparison("mean", C, B)), SAMPLES)
    assert judgment.verdict == "not held"
    assert judgment.why.startswith("1 of 2 comparisons favor it, 1 against (claimed ")
    assert "bold driver, Arch2: UN below SM, found +0.002" in judgment.why


def test_what_is_not_significant_is_undecided() -> None:
    judgment = verdict_on((Comparison("mean", B, A), Comparison("mean", A, C)), SAMPLES)
    assert judgment.verdict == "undecided"
    assert judgment.why == "1 of 2 comparisons favor it, 1 not significant."


def test_missing_runs_leave_a_claim_undecided() -> None:
    one_repeat = {A: [0.02], B: [0.01]}
    assert verdict_on((Comparison("mean", B, A),), one_repeat).why == "The records lack the runs it is about."
    partly = verdict_on((Comparison("mean", B, A), Comparison("mean", B, C)), {A: SAMPLES[A], B: SAMPLES[B]})
    assert (partly.verdict, partly.why) == (
        "undecided",
        "1 of 1 comparisons favor it, 1 lack runs.",
    )


def test_spreads_of_fewer_than_four_runs_are_not_compared() -> None:
    few = {A: [0.01, 0.02, 0.03], B: [0.02, 0.02, 0.021]}
    assert verdict_on((Comparison("spread", B, A),), few).why == "The records lack the runs it is about."


def test_comparisons_are_corrected_as_one_family() -> None:
    weak = {A: sample(0.0200, seed=3), B: sample(0.0195, seed=4), C: sample(0.02, seed=5)}
    alone = verdict_on((Comparison("mean", B, A),), weak)
    assert alone.verdict == "held"
    crowd = [Claim(1, "it", (Comparison("mean", B, A),))]
    others = (Comparison("mean", A, C), Comparison("spread", A, C), Comparison("spread", B, C))
    crowd += [Claim(k, "others", others) for k in range(2, 4)]
    crowded, *_ = judge(crowd, weak, [])
    assert crowded.comparisons[0].p == pytest.approx(4 * alone.comparisons[0].p)  # shared ones count once


def test_comparisons_of_the_same_cells_about_different_things_are_different() -> None:
    judgment = verdict_on(
        (Comparison("mean", B, A), Comparison("spread", B, A), Comparison("close", B, A)), SAMPLES
    )
    assert len({judged.difference for judged in judgment.comparisons}) == 3


def test_spreads_are_judged_by_their_direction() -> None:
    spread = {A: sample(0.02, 0.0001, n=30), B: sample(0.02, 0.003, seed=1, n=30)}
    assert verdict_on((Comparison("spread", A, B),), spread).verdict == "held"
    assert verdict_on((Comparison("spread", B, A),), spread).verdict == "not held"


def test_closeness_is_proved_disproved_or_open() -> None:
    near, far = sample(0.0201, seed=6), sample(0.030, seed=7)
    assert verdict_on((Comparison("close", A, B),), {A: SAMPLES[A], B: near}).verdict == "held"
    assert verdict_on((Comparison("close", A, B),), {A: SAMPLES[A], B: far}).verdict == "not held"
    vague = sample(0.0201, 10 * MARGIN, seed=8)
    assert verdict_on((Comparison("close", A, B),), {A: SAMPLES[A], B: vague}).verdict == "undecided"


@pytest.mark.parametrize(("lengths", "verdict"), [((26, 30), "held"), ((26, 31), "not held")])
def test_runs_end_by_an_epoch_or_not(lengths: tuple[int, ...], verdict: str) -> None:
    runs = [a_recorded_run(repeat=k, errors=[0.1] * length) for k, length in enumerate(lengths)]
    assert verdict_on(EndsBy("bold", 30), runs=runs).verdict == verdict
    other = a_recorded_run(repeat=9, errors=[0.1] * 60, update="adamw")
    decay = a_recorded_run(repeat=9, errors=[0.1] * 60, schedule="exponential")
    assert verdict_on(EndsBy("bold", 30), runs=[*runs, other, decay]).verdict == verdict


@pytest.mark.parametrize(("length", "verdict"), [(20, "undecided"), (45, "not held")])
def test_a_run_under_way_decides_only_by_being_too_long(length: int, verdict: str) -> None:
    ended = a_recorded_run(repeat=0, errors=[0.1] * 26)
    running = a_recorded_run(repeat=1, errors=[0.1] * length, reason=None)
    assert verdict_on(EndsBy("bold", 30), runs=[ended, running]).verdict == verdict
    assert verdict_on(EndsBy("bold", 30)).verdict == "undecided"


def test_runs_that_were_never_to_go_that_far_prove_nothing() -> None:
    run = a_recorded_run(repeat=0, errors=[0.1] * 10, maximum=10)
    judgment = verdict_on(EndsBy("bold", 30), runs=[run])
    assert (judgment.verdict, judgment.why) == ("undecided", "No run was allowed to go beyond epoch 10.")


def test_what_is_not_tested_says_why() -> None:
    judgment = verdict_on(NotTested("it was cold"))
    assert (judgment.verdict, judgment.why) == ("undecided", "Not tested here: it was cold.")


def test_the_claims_are_the_papers_thirteen_about_cells_it_has() -> None:
    assert [claim.number for claim in CLAIMS] == list(range(1, 14))
    for claim in CLAIMS:
        if isinstance(claim.evidence, tuple):
            assert claim.evidence
            for comparison in claim.evidence:
                assert comparison.lower in TABLE2
                assert comparison.higher in TABLE2
                assert comparison.lower != comparison.higher


def test_the_claims_read_off_the_papers_table_are_true_of_it() -> None:
    exact = {key: sample(printed.mean, 1e-7, seed=k) for k, (key, printed) in enumerate(TABLE2.items())}
    verdicts = {judgment.claim.number: judgment.verdict for judgment in judge(CLAIMS, exact, [])}
    assert {number for number, verdict in verdicts.items() if verdict == "held"} >= {3, 4, 5, 7, 8, 9, 10}
    # For UN with exponential decay the paper's own Arch2 is above its Arch1.
    assert verdicts[1] == verdicts[2] == "not held"
