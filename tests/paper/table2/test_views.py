from symoptim.paper.table2 import cells as table2
from symoptim.paper.table2 import trajectories, views
from symoptim.paper.table2.report import judge_summary
from symoptim.paper.table2.summary import Summary
from tests.support.recorded import a_recorded_run, an_experiment


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


def test_sentences_say_what_was_done_and_what_came_out() -> None:
    summary = everything()
    done, compared, judged = views.sentences(summary, judge_summary(summary))
    assert done.startswith("48 networks were trained on MNIST by the paper's protocol in full: 2 repeats")
    assert compared == (
        "The lowest mean test error is 0.0171, of 2-layer Arch2 with B-SGD and exp. decay; of 24 means 15 "
        "are within the paper's mean ± one standard deviation, 9 below and 0 above, and 24 of the deviations "
        "are smaller than the paper's."
    )
    assert judged.endswith("stay undecided, 2 of which were not tested.")


def test_smaller_experiments_and_other_data_do_not_compare() -> None:
    quick = everything()
    quick.experiment.configuration["profile"] = "quick"
    assert "errors do not compare with its" in " ".join(views.sentences(quick, []))
    assert "in small" in views.sentences(quick, [])[0]
    words = " ".join(views.sentences(everything(data="digits"), []))
    assert "8x8 digits" in words
    assert "the paper's mean" not in words


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
