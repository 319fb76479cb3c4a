from symoptim.paper.invariance.pairs import Pair
from symoptim.paper.table2 import captions
from tests.paper.table2.test_views import a_summary, everything


def test_captions_state_what_the_figures_show() -> None:
    summary = everything()
    titles = summary.experiment.configuration["titles"]
    caption = captions.trajectories_caption(summary.panels, summary.cells, titles)
    assert caption.startswith("Arch2 with the bold driver ends lower for 3 of 3 updates.")
    empty = a_summary()
    assert "not enough runs" in captions.trajectories_caption(empty.panels, empty.cells, titles)
    pairs = [Pair("arch1", "b-sgd", (1.0,), (1.5,)), Pair("arch1", "sm", (1.0,), (1.0,))]
    assert "part by up to 50%, those of SM and UN agree to 0e+00" in captions.invariance_caption(pairs)


def test_the_protocol_is_told_in_numbers() -> None:
    words = " ".join(value for _, value in captions.protocol_facts(everything()))
    for fact in (
        "0.01, 0.001",
        "50000 random",
        "times 0.95",
        "times 1.1",
        "after epoch 25",
        "by 255",
    ):
        assert fact in words
