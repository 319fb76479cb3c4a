import torch

from symoptim.support.seeds import mix, permutations


def test_every_item_comes_exactly_once() -> None:
    for size in (1, 2, 1000):
        order = permutations([3, 4], epoch=5, size=size)
        assert torch.equal(order.sort(dim=1).values, torch.arange(size).expand(2, -1))


def test_runs_and_epochs_have_their_own_order() -> None:
    first, second = permutations([1, 2], epoch=1, size=100)
    again, _ = permutations([1, 2], epoch=2, size=100)
    assert not torch.equal(first, second)
    assert not torch.equal(first, again)


def test_a_neighbors_seed_is_not_the_same_order_one_epoch_later() -> None:
    assert not torch.equal(permutations([1], 2, 100), permutations([2], 1, 100))


def test_an_order_does_not_depend_on_the_other_seeds() -> None:
    assert torch.equal(permutations([9], 3, 50)[0], permutations([1, 2, 9], 3, 50)[2])


def test_first_places_are_uniform() -> None:
    # chi-squared with 9 degrees of freedom: 27.9 is its 99.9 % quantile
    first = permutations(range(10_000), epoch=1, size=10)[:, 0]
    counts = first.bincount(minlength=10).double()
    assert ((counts - 1000).square() / 1000).sum() < 27.9


def test_mix_is_splitmix64() -> None:
    # The published first outputs of SplitMix64 from seed 1234567.
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + k * golden) % 2**64 for k in (1, 2, 3)]
    signed = torch.tensor([s - 2**64 if s >= 2**63 else s for s in states])
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [value % 2**64 for value in mix(signed).tolist()] == expected
