"""The SegNet page in sentences: what was done, what came out, what is missing. No HTML is here."""

from symoptim.report.scenes.summary import SceneSummary, UpdateResult, spreads
from symoptim.report.statistics import compare_means
from symoptim.report.views import duration

OURS = ("un", "un-momentum", "sm", "invariant-adamw")
SCENES = {"camvid": "CamVid's road scenes", "roads": "drawn road scenes"}
NETWORKS = {"segnet": "SegNet (VGG16's shape)", "segnet-basic": "SegNet-Basic"}


def scene_sentences(summary: SceneSummary) -> list[str]:
    """The page in a few sentences."""
    asked = summary.experiment.configuration
    protocol = asked["protocol"]
    height, width = protocol["size"]
    runs = sum(len(result.test) for result in summary.trained)
    done = (
        f"{NETWORKS[protocol['network']]} was trained from scratch on {asked['images'][0]} of "
        f"{SCENES[asked['data']]} at {width} x {height} pixels: {runs} run(s) of {protocol['epochs']} epochs "
        f"on {summary.experiment.device}, {duration(summary.experiment.seconds)} in all"
    )
    if summary.search:
        done += f", after {len(summary.search)} short ones that chose the rates"
    return [f"{done}.", *_best(summary), *_sensitivity(summary)]


def _best(summary: SceneSummary) -> list[str]:
    """Which update scores highest, and whether ours and the others differ by more than chance."""
    if not summary.trained:
        return []
    best = max(summary.trained, key=lambda result: result.mean)
    said = f"The highest mean IoU on the test set is {best.mean:.3f}, of {best.title}"
    ours, others = (
        max((r for r in summary.trained if (r.update in OURS) == mine), key=lambda r: r.mean, default=None)
        for mine in (True, False)
    )
    if ours is None or others is None:
        return [f"{said}."]
    return [f"{said}; {_comparison(ours, others)}."]


def _comparison(ours: UpdateResult, other: UpdateResult) -> str:
    words = f"the best invariant update ({ours.title}, {ours.mean:.3f}) is "
    gap = ours.mean - other.mean
    words += f"{abs(gap):.3f} {'above' if gap >= 0 else 'below'} the best other one ({other.title})"
    if min(len(ours.test), len(other.test)) < 2:
        return f"{words}, of one run each"
    found = compare_means(ours.mean_ious, other.mean_ious)
    level = "level" if found.p >= 0.05 else "a difference"
    return f"{words}: {level} by Welch's test (95 % interval {found.low:+.3f} to {found.high:+.3f})"


def _sensitivity(summary: SceneSummary) -> list[str]:
    if not summary.search:
        return []
    parts = [f"{summary.titles[update]} {spread:.2f}" for update, spread in spreads(summary.search).items()]
    return [f"Over the grid of rates the test score of a short run varies by: {', '.join(parts)}."]


def scene_remarks(summary: SceneSummary) -> list[str]:
    """What a reader has to know."""
    asked = summary.experiment.configuration
    remarks: list[str] = []
    if asked["data"] == "roads":
        remarks.append(
            "These scenes are drawn by a program, because CamVid was not there: scores say nothing about it."
        )
    if asked["profile"] == "quick":
        remarks.append(
            "A small network on small images for a few epochs: scores do not compare with others'."
        )
    missing = sum(result.missing for result in summary.results)
    if missing:
        remarks.append(f"{missing} run(s) have not ended: run the same command to go on.")
    diverged = sum(result.diverged for result in summary.results)
    if diverged:
        remarks.append(f"{diverged} run(s) diverged; they are counted, and left out of all means.")
    return remarks


def scene_protocol(summary: SceneSummary) -> list[tuple[str, str]]:
    """How it was done, by name."""
    asked = summary.experiment.configuration["protocol"]
    changes = asked["augmentation"]
    zoom = (
        f"a window of {changes['zoom'][0]:g} to {changes['zoom'][1]:g} times its size, "
        if changes["zoom"]
        else ""
    )
    weights = {"none": "all alike", "median": "median frequency", "root": "square roots of median frequency"}
    facts = [
        (
            "training",
            f"batches of {asked['batch']}, {asked['epochs']} epochs, rate by {asked['schedule']} schedule; "
            f"class weights: {weights[asked['weighting']]}; every image {zoom}mirrored half of the time",
        ),
        (
            "updates",
            "UN and SM without momentum or decay, on the filters before batch normalization, everything else "
            "by plain SGD at the same rate; SGD with momentum .9 and decay 5e-4, AdamW with decay .05",
        ),
        (
            "evaluation",
            "statistics of batch normalization measured anew on the training images; one confusion matrix "
            "over the whole set, pixels without a class left out",
        ),
    ]
    if asked["rates"]:
        rates = ", ".join(f"{rate:g}" for rate in asked["rates"])
        crop = asked["search_crop"]
        pieces = f" on crops of {crop[1]} x {crop[0]} pixels" if crop else ""
        facts.append(
            (
                "rates",
                f"one grid for all updates ({rates}): runs of {asked['search_epochs']} epochs{pieces}; the "
                f"best {asked['finalists']} of each update ran in full, the best of these is repeated; best "
                "is the highest mean IoU on the validation set",
            )
        )
    return facts


def pictures_caption(summary: SceneSummary) -> str:
    """What the pictures show, and whose images they are."""
    shown = "Test images, their true labels, and what the first run of each update made of them."
    if summary.experiment.configuration["data"] != "camvid":
        return shown
    return (
        f"{shown} Images and labels: CamVid, G. Brostow, J. Fauqueur, R. Cipolla, Semantic object classes in "
        "video, Pattern Recognition Letters 30 (2009), with the 11 classes of SegNet's tutorial."
    )
