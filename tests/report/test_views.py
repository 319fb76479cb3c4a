from recorded import a_recorded_run, an_experiment
from symoptim.records.pairs import Pair
from symoptim.report import table2, trajectories, views
from symoptim.report.page import judge_summary
from symoptim.report.summary import Summary


def a_summary(runs=(), **options) -> Summary:
    experiment, runs = an_experiment(**options), list(runs)
    return Summary(experiment, runs, table2.cells(experiment, runs), trajectories.panels(experiment, runs))


def everything(repeats: int = 2, **options) -> Summary:
    """Every run of the paper's table, each cell with errors of its own."""
    experiment = an_experiment(repeats=repeats)
    asked = experiment.configuration["protocol"]
    runs = [
        a_recorded_run(
            repeat=repeat,
            errors=[0.1, 0.015 + 0.001 * depth + 0.0001 * repeat + 0.002 * (architecture == "arch1")],
            depth=depth,
            schedule=schedule,
            architecture=architecture,
            update=update,
        )
        for depth in asked["depths"]
        for schedule in asked["schedules"]
        for architecture in asked["architectures"]
        for update in asked["updates"]
        for repeat in range(repeats)
    ]
    return a_summary(runs, repeats=repeats, **options)


def test_three_sentences_say_what_was_done_and_what_came_out() -> None:
    summary = everything()
    done, compared, judged = views.sentences(summary, judge_summary(summary))
    assert done.startswith(
        "48 networks were trained to their end on mnist by the paper's protocol, 2 repeats"
    )
    assert compared == "24 of 24 means are at or under the paper's mean plus its standard deviation."
    assert judged.startswith("Of the paper's 13 claims ")


def test_smaller_experiments_and_other_data_do_not_compare() -> None:
    quick = everything()
    quick.experiment.configuration["profile"] = "quick"
    assert "only the profile paper compares" in views.sentences(quick, [])[1]
    assert "no numbers for digits" in views.sentences(everything(data="digits"), [])[1]


def test_what_is_missing_is_said() -> None:
    assert views.missing(everything()) == []
    (remark,) = views.missing(a_summary([], repeats=2))
    assert remark == "48 of 48 full runs have not ended: run the same command to go on."
    diverged = a_summary([a_recorded_run(repeat=0, errors=[0.9], diverged=True)], repeats=1)
    words = " ".join(views.missing(diverged))
    assert "23 of 24 full runs have not ended" in words
    assert "1 full run(s) diverged" in words
    assert "With one repeat" in words
    assert "digits of 8x8 pixels, not the paper's MNIST" in " ".join(views.missing(everything(data="digits")))


def test_the_best_cell_of_every_row_has_the_lowest_mean() -> None:
    best = views.best_of_rows(everything().cells)
    assert len(best) == 4
    assert {cell.key.architecture for cell in best} == {"arch2"}
    assert views.best_of_rows(a_summary().cells) == set()


def test_rates_are_counted_once_per_repeat() -> None:
    runs = [
        a_recorded_run(repeat=k, errors=[0.1], schedule=schedule)._replace(configuration={"rate": rate})
        for k, rate in enumerate((0.01, 0.01, 0.001))
        for schedule in ("exponential", "bold")
    ]
    rates, rows = views.chosen_rates(a_summary(runs, rates=[0.001, 0.01]))
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
    (row,) = views.endings(a_summary(runs))
    assert row[2:5] == (26, 28, 30)
    assert row.reasons == "2 it got worse; 1 every candidate rate diverged"


def test_captions_state_what_the_figures_show() -> None:
    summary = everything()
    titles = summary.experiment.configuration["titles"]
    caption = views.trajectories_caption(summary.panels, summary.cells, titles)
    assert caption.startswith("Arch2 with the bold driver ends lower for 3 of 3 updates.")
    empty = a_summary()
    assert "not enough runs" in views.trajectories_caption(empty.panels, empty.cells, titles)
    pairs = [Pair("arch1", "b-sgd", (1.0,), (1.5,)), Pair("arch1", "sm", (1.0,), (1.0,))]
    assert "part by up to 50%, those of SM and UN agree to 0e+00" in views.invariance_caption(pairs)
