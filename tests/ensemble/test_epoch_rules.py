"""The rules of the protocol that work between epochs; each test fails if its rule is dropped."""

import math

import pytest

from symoptim.ensemble import Bold, Constant, Cosine, EarlyStopping, Epoch, Exponential, FixedEpochs
from symoptim.ensemble.epoch_rules import has_diverged, next_rate, stop_reason

RULE = EarlyStopping()


def history(
    length: int,
    *,
    losses: dict[int, float] | None = None,
    train_errors: dict[int, float] | None = None,
    validation_errors: dict[int, float] | None = None,
) -> list[Epoch]:
    """A run that gets better all the time, but for the epochs that are named."""
    return [
        Epoch(
            number,
            rate=0.1,
            loss=(losses or {}).get(number, 1 / number),
            train_error=(train_errors or {}).get(number, 0.1 / number),
            validation_error=(validation_errors or {}).get(number, 0.2 - 0.001 * number),
            test_error=0.1,
        )
        for number in range(1, length + 1)
    ]


def test_a_run_that_gets_better_goes_on_to_the_maximum() -> None:
    assert stop_reason(RULE, history(59)) is None
    assert stop_reason(RULE, history(60)) == "all epochs done"


TRIGGERS = {
    "training error below 1e-05": {"train_errors": {26: 0.9e-5}},
    "validation error above that of 5 epochs earlier": {"validation_errors": {26: 0.2 - 0.021 + 1e-4}},
    "validation error changed by less than 1e-05": {"validation_errors": {26: 0.2 - 0.025 + 0.9e-5}},
}


@pytest.mark.parametrize("reason", TRIGGERS)
def test_each_rule_alone_stops_a_run_at_epoch_26(reason: str) -> None:
    assert stop_reason(RULE, history(26, **TRIGGERS[reason])) == reason


@pytest.mark.parametrize("reason", TRIGGERS)
def test_no_rule_stops_a_run_within_the_minimum(reason: str) -> None:
    (kind, numbers), *_ = TRIGGERS[reason].items()
    (value,) = numbers.values()
    assert stop_reason(RULE, history(25, **{kind: {25: value}})) is None


@pytest.mark.parametrize("reason", TRIGGERS)
def test_exponential_decay_runs_all_epochs_whatever_happens(reason: str) -> None:
    assert stop_reason(FixedEpochs(maximum=60), history(26, **TRIGGERS[reason])) is None


def test_the_rules_are_strict() -> None:
    on_the_line = history(26, train_errors={26: 1e-5})
    assert stop_reason(RULE, on_the_line) is None
    equal = history(26, validation_errors={21: 0.1, 25: 0.2, 26: 0.1})
    assert stop_reason(RULE, equal) is None


def test_exponential_decay_shrinks_the_rate_by_the_factor() -> None:
    assert next_rate(Exponential(decay=0.95), history(1)) == pytest.approx(0.095)
    assert next_rate(Constant(), history(7)) == 0.1


def test_a_cosine_goes_by_the_rate_of_the_first_epoch_and_the_number_of_the_last() -> None:
    epochs = [epoch._replace(rate=rate) for epoch, rate in zip(history(3), (0.2, 7.0, 7.0), strict=True)]
    assert next_rate(Cosine(epochs=4), epochs[:1]) == pytest.approx(0.1 * (1 + math.sqrt(0.5)))
    assert next_rate(Cosine(epochs=4), epochs[:2]) == pytest.approx(0.1)
    assert next_rate(Cosine(epochs=4), epochs) == pytest.approx(0.1 * (1 - math.sqrt(0.5)))


def test_after_its_epochs_a_cosine_stays_at_zero() -> None:
    assert next_rate(Cosine(epochs=4), history(4)) == pytest.approx(0.0, abs=1e-18)
    assert next_rate(Cosine(epochs=4), history(7)) == pytest.approx(0.0, abs=1e-18)


def test_the_bold_drivers_first_epoch_changes_nothing() -> None:
    assert next_rate(Bold(), history(1)) == 0.1


@pytest.mark.parametrize(
    ("loss", "factor"), [(0.4, 1.1), (0.5, 1.1), (0.6, 0.5), (math.nan, 0.5), (math.inf, 0.5)]
)
def test_the_bold_driver_grows_when_the_loss_is_not_higher_and_halves_on_nan(
    loss: float, factor: float
) -> None:
    epochs = history(3, losses={2: 0.5, 3: loss})
    assert next_rate(Bold(grow=1.1, shrink=0.5), epochs) == pytest.approx(0.1 * factor)


@pytest.mark.parametrize(
    ("loss", "error", "diverged"),
    [(0.1, 0.1, False), (0.1, 0.5, False), (0.1, 0.51, True), (math.nan, 0.1, True), (math.inf, 0.1, True)],
)
def test_a_run_has_diverged_without_a_finite_loss_or_with_more_than_half_wrong(
    loss: float, error: float, diverged: bool
) -> None:
    assert has_diverged(Epoch(60, 0.1, loss, 0.1, error, 0.1)) is diverged
