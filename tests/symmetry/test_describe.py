from symmetry.zoo import group_of
from symoptim.symmetry.describe import kinds, text_of


def moved(name: str) -> set[tuple[int, frozenset[str]]]:
    """Kinds of units: how many, and what moves with them."""
    return {(kind.number, frozenset(map(str, kind.slices))) for kind in kinds(group_of(name))}


def test_units_of_arch1_are_pairs_of_rows_and_a_column() -> None:
    assert moved("arch1") == {
        (2, frozenset({"hidden.0.filters.weight rows x a", "hidden.1.filters.weight columns / a"})),
        (2, frozenset({"hidden.1.filters.weight rows x a", "classifier.weight columns / a"})),
    }


def test_what_moves_in_attention_is_named() -> None:
    assert moved("attention by hand") == {
        (4, frozenset({"query.weight rows x a", "query.bias entries x a", "key.weight rows / a"})),
        (4, frozenset({"key.bias entries x a"})),
        (4, frozenset({"value.weight rows x a", "value.bias entries x a", "out.weight columns / a"})),
    }


def test_powers_are_shown() -> None:
    text = text_of(group_of("arch2 training"))
    assert text.startswith("12 rescalings\n")
    assert "hidden.0.norm.running_var entries x a^2" in text
    assert "exact as far as eps is not felt: batch_norm (eps 1e-30) x 2" in text
