"""Patterns of names stand for exactly the names they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from symoptim.symmetry.names import by_pattern, fitting, is_number, parts_of, patterns_of, products

NAMES = st.builds("stages.{}.blocks.{}.{}".format, *[st.integers(0, 12)] * 2, st.sampled_from(["up", "down"]))


@given(st.sets(NAMES, max_size=30))
def test_patterns_stand_for_exactly_the_names(names: set[str]) -> None:
    everything = [
        f"stages.{i}.blocks.{j}.{name}" for i in range(13) for j in range(13) for name in ("up", "down")
    ]
    found = [
        name for pattern in patterns_of(sorted(names)) for name in fitting(pattern, by_pattern(everything))
    ]
    assert sorted(found) == sorted(names)


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))))
def test_products_have_every_tuple_once(tuples: set[tuple[int, ...]]) -> None:
    found = [(a, b, c) for one in products(tuples) for a in one[0] for b in one[1] for c in one[2]]
    assert sorted(found) == sorted(tuples)


def test_numbers_of_other_writing_are_part_of_the_name() -> None:
    assert not is_number("01")
    assert not is_number("²")
    assert patterns_of(["a.01.b", "a.02.b"]) == ["a.01.b", "a.02.b"]


def test_ranges_do_not_break_a_name() -> None:
    assert parts_of("a.{0..3,7}.{1,2}.b c") == ["a", "{0..3,7}", "{1,2}", "b"]
