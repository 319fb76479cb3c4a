"""The SegNet page in sentences: what was done, what came out, what is missing. No HTML is here."""

from collections.abc import Mapping
from typing import Any

from symoptim.paper.segnet.summary import RatePoint, SceneSummary, spreads
from symoptim.paper.segnet.verdict import listed, spoken, verdict
from symoptim.paper.table2.views import duration

SCENES = {"camvid": "CamVid's road scenes", "roads": "drawn road scenes"}
NETWORKS = {"segnet": "SegNet (VGG16's shape)", "segnet-basic": "SegNet-Basic"}


def scene_sentences(summary: SceneSummary) -> list[str]:
    """The page in a few sentences."""
    asked = summary.experiment.configuration
    protocol = asked["protocol"]
    height, width = protocol["size"]
    chosen = {result.update: result.rate for result in summary.results}
    full = sum(len(result.test) for result in summary.trained)
    full += sum(point.rate != chosen[point.update] for point in summary.finalists)
    done = (
        f"{NETWORKS[protocol['network']]} was trained from scratch on {asked['images'][0]} images of "
        f"{SCENES[asked['data']]} at {width} x {height} pixels: {full} run(s) of {protocol['epochs']} epochs "
        f"on {summary.experiment.device}, {duration(summary.experiment.seconds)} in all"
    )
    if summary.search:
        done += f", after {len(summary.search)} short ones that chose which rates ran in full"
    return [f"{done}.", *_best(summary), *_sensitivity(summary)]


def _best(summary: SceneSummary) -> list[str]:
    """Which update scores highest, and how the paper's compare with the others."""
    if not summary.trained:
        return []
    best = max(summary.trained, key=lambda result: result.mean)
    if len(summary.trained) == 1:
        return [f"The mean IoU on the test set is {best.mean:.3f}, of {spoken(best.title)}."]
    said = f"The highest mean IoU on the test set is {best.mean:.3f}, of {spoken(best.title)}"
    compared = verdict(summary)
    return [f"{said}; {compared}." if compared else f"{said}."]


def _sensitivity(summary: SceneSummary) -> list[str]:
    """How far scores vary with the rate, the update that minds it least first."""
    if not summary.search:
        return []
    ordered = sorted(spreads(summary.search).items(), key=lambda pair: pair[1])
    parts = listed([f"{spread:.2f} with {spoken(summary.titles[update])}" for update, spread in ordered])
    return [f"Over the grid of rates the test score of a short run varies by {parts}."]


def scene_remarks(summary: SceneSummary) -> list[str]:
    """What a reader has to know."""
    asked = summary.experiment.configuration
    remarks: list[str] = []
    if asked["data"] == "roads":
        remarks.append("These scenes are drawn by a program: scores say nothing about CamVid.")
    if asked["profile"] == "quick":
        remarks.append(
            "A small network on small images for a few epochs: scores do not compare with others'."
        )
    if {"un", "sm"} <= {result.update for result in summary.trained}:
        remarks.append(
            "UN and SM take the same path here, for every filter they move is normalized behind it: they "
            "differ by rounding, which training magnifies. A repeat of both counts as one observation."
        )
    remarks += _edges(summary)
    missing = sum(result.missing for result in summary.results)
    if missing:
        remarks.append(f"{missing} run(s) have not ended: run the same command to go on.")
    diverged = sum(result.diverged for result in summary.results)
    if diverged:
        remarks.append(f"{diverged} run(s) diverged; they are counted, and left out of all means.")
    return remarks


def _edges(summary: SceneSummary) -> list[str]:
    """Updates for which a rate beyond the grid might have been better."""
    if not summary.search:
        return []
    rates = summary.experiment.configuration["protocol"]["rates"]
    best: dict[str, RatePoint] = {}
    for point in summary.search:
        if not point.diverged and _rank(point) > _rank(best.get(point.update)):
            best[point.update] = point
    found = {
        "best rate of the short runs": [(update, point.rate) for update, point in best.items()],
        "rate that was repeated": [(result.update, result.rate) for result in summary.trained],
    }
    remarks: list[str] = []
    for which, pairs in found.items():
        ends = [(update, rate) for update, rate in pairs if rate in (min(rates), max(rates))]
        if ends:
            names = listed([f"{spoken(summary.titles[update])} ({rate:g})" for update, rate in ends])
            remarks.append(f"The {which} is at the edge of the grid for {names}: one beyond may be better.")
    return remarks


def _rank(point: RatePoint | None) -> tuple[float, float]:
    """By score, and by rate on a tie, as rates are chosen."""
    return (point.validation, point.rate) if point else (-1.0, 0.0)


def scene_protocol(summary: SceneSummary) -> list[tuple[str, str]]:
    """How it was done, by name."""
    configuration = summary.experiment.configuration
    asked = configuration["protocol"]
    changes = asked["augmentation"]
    low, high = changes["zoom"] or (1.0, 1.0)
    zoom = f"seen through a window of {low:g} to {high:g} times its size, " if changes["zoom"] else ""
    weights = {"none": "none", "median": "median frequency", "root": "square roots of median frequency"}
    facts = [
        (
            "training",
            f"batches of {asked['batch']}, {asked['epochs']} epochs, {asked['schedule']} schedule; class "
            f"weights, from the training set: {weights[asked['weighting']]}; every image {zoom}mirrored half "
            f"of the time; bfloat16 on CUDA{', through torch.compile' if configuration['compiled'] else ''}",
        ),
        *((summary.titles[update], words) for update, words in configuration.get("words", {}).items()),
        (
            "evaluation",
            "statistics of batch normalization measured anew on the training images as they are trained on; "
            "one confusion matrix over the whole set, pixels without a class left out",
        ),
    ]
    return facts + _rate_facts(asked)


def _rate_facts(asked: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not asked["rates"]:
        return [("rates", "as registered with the updates; none were searched for")]
    rates = ", ".join(f"{rate:g}" for rate in asked["rates"])
    crop = asked["search_crop"]
    pieces = f" on crops of {crop[1]} x {crop[0]} pixels" if crop else ""
    finalists = min(asked["finalists"], len(asked["rates"]))
    return [
        (
            "rates",
            f"one grid for all updates ({rates}): runs of {min(asked['search_epochs'], asked['epochs'])} "
            f"epochs{pieces}; the best {finalists} of each update ran in full, and the best of these is "
            "repeated, the run that won being the first repeat; best is the highest mean IoU on the "
            "validation set",
        )
    ]


def pictures_caption(summary: SceneSummary) -> str:
    """What the pictures show, and whose images they are."""
    shown = "Test images, their true labels, and what the first run of each update made of them."
    if summary.experiment.configuration["data"] != "camvid":
        return shown
    return (
        f"{shown} Images and labels: CamVid, G. Brostow, J. Fauqueur, R. Cipolla, Semantic object classes in "
        "video, Pattern Recognition Letters 30 (2009), with the 11 classes of SegNet's tutorial."
    )
