"""The report on SegNet: a page with scores, pictures and curves, tables as Markdown and CSV."""

from pathlib import Path

from symoptim.paper.report.html import PAGE, Facts, Figure, Report, duration, inline_png, render_page
from symoptim.paper.report.provenance import provenance_list, provenance_with_data
from symoptim.paper.segnet import tables
from symoptim.paper.segnet.comparison import compare
from symoptim.paper.segnet.figures import draw_curves, draw_predictions, draw_sensitivity
from symoptim.paper.segnet.summary import SceneSummary, summarize_scenes
from symoptim.support.files import write_files
from symoptim.support.plotting import inline_svg

TITLE = "Symmetry-invariant optimization in deep networks: SegNet on road scenes"
SCENES = {"camvid": "CamVid", "roads": "road scenes drawn by a program"}
NETWORKS = {"segnet": "SegNet (VGG16's shape)", "segnet-basic": "SegNet-Basic"}
WEIGHTS = {"none": "none", "median": "median frequency", "root": "square roots of median frequency"}
CREDIT = (
    "Images and labels: CamVid, G. Brostow, J. Fauqueur, R. Cipolla, Semantic object classes in video, "
    "Pattern Recognition Letters 30 (2009), with the 11 classes of SegNet's tutorial."
)


def write(folder: Path, records: Path) -> Report:
    """Write the page, its pictures, Markdown and CSV."""
    summary = summarize_scenes(records)
    sensitivity = f"\n{tables.rates_markdown(summary)}" if summary.search else ""
    scores = tables.scores_markdown(summary) + sensitivity + f"\n{provenance_list(summary.experiment)}"
    texts = {
        PAGE: render(summary, folder),
        "scores.md": scores,
        "scores.csv": tables.scores_csv(summary),
        **({"curves.csv": tables.curves_csv(summary)} if summary.trained else {}),
        **({"sensitivity.csv": tables.rates_csv(summary)} if summary.search else {}),
    }
    return Report(summary.experiment.name, summary, write_files(folder, texts))


def render(summary: SceneSummary, folder: Path) -> str:
    """The page as HTML; its figures are drawn into the folder on the way."""
    lines = tables.score_lines(summary)
    return render_page(
        "segnet/report.html.j2",
        title=TITLE,
        facts=facts(summary),
        remarks=remarks(summary),
        lines=lines,
        has_published=any(not line.is_ours for line in lines),
        comparison=compare(summary),
        figures=_figures(summary, folder),
        titles=[result.title for result in summary.trained],
        class_rows=tables.class_rows(summary),
        rates=[f"{rate:g}" for rate in tables.searched_rates(summary)],
        rate_rows=tables.rate_rows(summary),
        finalist_rows=tables.finalist_rows(summary),
        protocol=protocol_facts(summary),
        provenance=provenance_with_data(summary.experiment),
    )


def facts(summary: SceneSummary) -> Facts:
    """What was done, and what came out."""
    config, experiment = summary.experiment.configuration, summary.experiment
    protocol = config["protocol"]
    height, width = protocol["size"]
    chosen = {result.update: result.rate for result in summary.results}
    full = sum(len(result.test) for result in summary.trained)
    full += sum(point.rate != chosen[point.update] for point in summary.finalists)
    short = f", {len(summary.search)} short ones that chose which rates ran in full" if summary.search else ""
    rows: Facts = [
        ("network", f"{NETWORKS[protocol['network']]}, from scratch"),
        (
            "data",
            f"{config['images'][0]} training images of {SCENES[config['data']]}, {width} x {height} pixels",
        ),
        ("runs", f"{full} of {protocol['epochs']} epochs{short}"),
        ("trained", f"on {experiment.device} in {duration(experiment.seconds)}"),
    ]
    if summary.trained:
        best = max(summary.trained, key=lambda result: result.mean)
        rows.append(("highest mean IoU", f"{best.mean:.3f}: {best.title}"))
    return rows


def remarks(summary: SceneSummary) -> list[str]:
    """What a reader has to know."""
    config = summary.experiment.configuration
    missing = sum(result.missing for result in summary.results)
    diverged = sum(result.diverged for result in summary.results)
    rates: list[float] = config["protocol"]["rates"] if summary.search else []
    ends = [r for r in summary.trained if rates and r.rate in (min(rates), max(rates))]
    edge = "; ".join(f"{result.title} ({result.rate:g})" for result in ends)
    conditions = {
        "These scenes are drawn by a program: scores say nothing about CamVid.": config["data"] == "roads",
        "A small network on small images for a few epochs: scores do not compare with others'.": (
            config["profile"] == "quick"
        ),
        "UN and SM take the same path here, for every filter they move is normalized behind it: they differ "
        "by rounding, which training magnifies. A repeat of both counts as one observation.": (
            {"un", "sm"} <= {result.update for result in summary.trained}
        ),
        f"The best rate is at the edge of the grid, and one beyond may be better: {edge}.": ends,
        f"{missing} run(s) have not ended: run the same command to go on.": missing,
        f"{diverged} run(s) diverged; they are counted, and left out of all means.": diverged,
    }
    return [remark for remark, holds in conditions.items() if holds]


def protocol_facts(summary: SceneSummary) -> Facts:
    """How it was done, by name."""
    configuration = summary.experiment.configuration
    config = configuration["protocol"]
    crop, low_high = config["search_crop"], config["augmentation"]["zoom"]
    zoom = f"windows of {low_high[0]:g} to {low_high[1]:g} times their size; " if low_high else ""
    crops = f" on crops of {crop[1]} x {crop[0]} pixels" if crop else ""
    compiled = "; through torch.compile" if configuration["compiled"] else ""
    search = [
        ("rates tried", ", ".join(f"{rate:g}" for rate in config["rates"])),
        (
            "choice of rates",
            f"short runs of {min(config['search_epochs'], config['epochs'])} epochs{crops}; the best "
            f"{min(config['finalists'], len(config['rates']))} of each update in full; repeats at the best "
            "of these, of which the run that won is the first; best by mean IoU on the validation set",
        ),
    ]
    return [
        (
            "training",
            f"batches of {config['batch']}, {config['epochs']} epochs, {config['schedule']} schedule",
        ),
        ("rate", "multiplies the gradient of the mean loss of a batch"),
        ("class weights", f"{WEIGHTS[config['weighting']]}, from the training set"),
        ("images", f"{zoom}half of them mirrored"),
        ("precision", f"bfloat16 on CUDA, weights float32{compiled}"),
        *((summary.titles[update], words) for update, words in configuration.get("words", {}).items()),
        ("evaluation", "batch normalization measured anew on training images; one confusion matrix per set"),
        *(
            search
            if config["rates"]
            else [("rates tried", "none: those registered with the updates were used")]
        ),
    ]


def _figures(summary: SceneSummary, folder: Path) -> list[Figure]:
    if not summary.trained:
        lost = all(result.diverged and not result.missing for result in summary.results)
        missing = "Every full run diverged." if lost else "No full run has ended yet."
        titles = (("pictures", "Pictures"), ("curves", "Learning curves"))
        return [*(Figure(name, title, "", missing) for name, title in titles), _sensitivity(summary, folder)]
    pictures = inline_png(draw_predictions(summary, folder / "predictions"), "Scenes and their segmentations")
    _, curves = draw_curves(summary, folder / "curves")
    shown = "Test images, their true labels, and what the first run of each update made of them."
    credit = f" {CREDIT}" if summary.experiment.configuration["data"] == "camvid" else ""
    return [
        Figure("pictures", "Pictures", pictures, shown + credit),
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
