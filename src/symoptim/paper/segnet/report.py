"""The page of the SegNet experiment."""

from pathlib import Path

from symoptim.paper.report.html import Figure, inline_png, render_page
from symoptim.paper.segnet import tables, words
from symoptim.paper.segnet.figures import draw_curves, draw_predictions, draw_sensitivity
from symoptim.paper.segnet.summary import SceneSummary
from symoptim.paper.table2.summary import provenance_facts
from symoptim.support.plotting import inline_svg

TITLE = "Symmetry-invariant optimization in deep networks: SegNet on road scenes"


def render_scenes(summary: SceneSummary, folder: Path) -> str:
    """The page as HTML; its figures are drawn into the folder on the way.

    Args:
        summary: what the records say.
        folder: of the results.

    Returns:
        The page.
    """
    asked = summary.experiment.configuration
    lines = tables.score_lines(summary)
    return render_page(
        "segnet/report.html.j2",
        title=TITLE,
        sentences=words.scene_sentences(summary),
        remarks=words.scene_remarks(summary),
        lines=lines,
        has_published=any(not line.is_ours for line in lines),
        figures=_figures(summary, folder),
        titles=[result.title for result in summary.trained],
        class_rows=tables.class_rows(summary),
        rates=[f"{rate:g}" for rate in tables.searched_rates(summary)],
        rate_rows=tables.rate_rows(summary),
        finalist_rows=tables.finalist_rows(summary),
        protocol=words.scene_protocol(summary),
        provenance=[
            *provenance_facts(summary.experiment),
            ("data", f"{asked['data']}, digest {asked['digest']}"),
        ],
    )


def _figures(summary: SceneSummary, folder: Path) -> list[Figure]:
    if not summary.trained:
        lost = all(result.diverged and not result.missing for result in summary.results)
        missing = "Every full run diverged." if lost else "No full run has ended yet."
        titles = (("pictures", "Pictures"), ("curves", "Learning curves"))
        return [*(Figure(name, title, "", missing) for name, title in titles), _sensitivity(summary, folder)]
    pictures = inline_png(draw_predictions(summary, folder / "predictions"), "Scenes and their segmentations")
    _, curves = draw_curves(summary, folder / "curves")
    return [
        Figure("pictures", "Pictures", pictures, words.pictures_caption(summary)),
        Figure(
            "curves",
            "Learning curves",
            inline_svg(curves, "Training loss and validation score over the epochs"),
            "Training loss, weighted by class, and mean IoU on the validation set, every run a line.",
        ),
        _sensitivity(summary, folder),
    ]


def _sensitivity(summary: SceneSummary, folder: Path) -> Figure:
    title = "Sensitivity to the learning rate"
    if not summary.search:
        return Figure("sensitivity", title, "", "Not there: no rates were searched (--rates).")
    _, drawing = draw_sensitivity(summary.search, summary.titles, folder / "sensitivity")
    return Figure(
        "sensitivity",
        title,
        inline_svg(drawing, "Test score against learning rate"),
        "Mean IoU on the test set after the short runs of the search, one run per point; a run that diverged "
        "scores 0 (cross). Spread is the largest score minus the smallest.",
    )
