from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import symoptim
from symoptim.errors import OptionError
from symoptim.models.segnet import ConvolutionBlock, EncoderDecoder, SegNet, SegNetBasic


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_sizes_are_the_published_ones_less_the_biases_before_batch_normalization() -> None:
    segnet, basic = SegNet(), SegNetBasic()
    assert count(segnet) == 29_441_419  # 29.449 M with the 8 k biases
    assert count(basic) == 1_416_075  # 1.417 M with them
    assert sum(isinstance(module, ConvolutionBlock) for module in segnet.modules()) == 25
    biases = [m.bias for m in segnet.modules() if isinstance(m, nn.Conv2d) and m.bias is not None]
    assert len(biases) == 1


@pytest.mark.parametrize("make", [lambda k: SegNet(k, width=1 / 32), lambda k: SegNetBasic(k, features=4)])
@pytest.mark.parametrize("size", [(360, 480), (45, 61), (33, 47), (32, 32)])
@pytest.mark.parametrize("classes", [2, 11])
def test_scores_have_the_size_of_the_image(
    make: Callable[[int], EncoderDecoder], size: tuple[int, int], classes: int
) -> None:
    with torch.no_grad():
        assert make(classes)(torch.rand(2, 3, *size)).shape == (2, classes, *size)


def test_pools_round_up_as_the_published_network_does() -> None:
    model = SegNetBasic(features=2).eval()
    sizes: list[tuple[int, int]] = []
    for stage in model.encoder:
        stage.register_forward_hook(lambda _m, _i, output: sizes.append(tuple(output.shape[-2:])))
    model.decoder[0].register_forward_hook(lambda _m, inputs, _o: sizes.append(tuple(inputs[0].shape[-2:])))
    with torch.no_grad():
        model(torch.rand(1, 3, 360, 480))
    assert sizes == [(360, 480), (180, 240), (90, 120), (45, 60), (45, 60)]


def test_the_decoder_puts_every_maximum_back_where_it_was() -> None:
    model = EncoderDecoder([nn.Identity()], [nn.Identity()], nn.Identity())
    image = torch.tensor([[[[1.0, 5.0, 2.0], [3.0, 4.0, 9.0], [7.0, 6.0, 8.0]]]])
    expected = torch.tensor([[[[0.0, 5.0, 0.0], [0.0, 0.0, 9.0], [7.0, 0.0, 8.0]]]])
    assert torch.equal(model(image), expected)


def test_the_basic_network_has_no_relu_in_its_decoder_and_normalizes_contrast_first() -> None:
    model = SegNetBasic(features=4)
    assert not any(isinstance(module, nn.ReLU) for module in model.decoder.modules())
    pixel = torch.tensor([100.0, 150.0, 200.0]).reshape(1, 3, 1, 1)
    expected = pixel / (1 + 1e-4 / 5 * pixel.square().sum()) ** 0.75
    torch.testing.assert_close(model.encoder[0][0](pixel), expected)


@pytest.mark.parametrize("options", [{"classes": 0}, {"features": 0}, {"stages": 0}])
def test_bad_sizes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="must be above 0, got 0"):
        SegNetBasic(**options)


def exact(make: Callable[[], EncoderDecoder]) -> EncoderDecoder:
    """The network in float64, its batch normalization with an eps too small to be felt."""
    torch.manual_seed(0)
    model = make().double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-30
    return model


@torch.no_grad()
def rescale(model: EncoderDecoder) -> EncoderDecoder:
    """Multiply every filter before batch normalization by a number of its own between 1/100 and 100."""
    generator = torch.Generator().manual_seed(1)
    for block in model.modules():
        if isinstance(block, ConvolutionBlock):
            weight = block[0].weight
            scales = 10 ** (4 * torch.rand(len(weight), generator=generator, dtype=torch.float64) - 2)
            weight.mul_(scales.reshape(-1, 1, 1, 1))
    return model


NETWORKS = [lambda: SegNet(4, width=1 / 16), lambda: SegNetBasic(4, features=6)]


@pytest.mark.parametrize("make", NETWORKS)
def test_rescaling_filters_before_batch_normalization_changes_no_output(
    make: Callable[[], EncoderDecoder],
) -> None:
    images = torch.rand(4, 3, 45, 60, dtype=torch.float64)
    scores, rescaled = exact(make)(images), rescale(exact(make))(images)
    torch.testing.assert_close(rescaled, scores, rtol=1e-10, atol=1e-10)


OPTIMIZERS = {
    "SM": lambda model: symoptim.ScaledSGD(symoptim.param_groups(model), lr=0.02),
    "UN": lambda model: symoptim.UnitNormSGD(
        symoptim.param_groups(model), lr=0.02, momentum=0.9, normalize=True
    ),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.02),
}


def losses(model: EncoderDecoder, optimizer: torch.optim.Optimizer) -> list[float]:
    generator = torch.Generator().manual_seed(2)
    found: list[float] = []
    for _ in range(6):
        images = torch.rand(4, 3, 33, 40, generator=generator, dtype=torch.float64)
        labels = (images.mean(dim=1) * 8).long() % 4
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("update", OPTIMIZERS)
def test_trajectories_coincide_under_rescaling_but_for_sgd(
    make: Callable[[], EncoderDecoder], update: str
) -> None:
    straight, moved = exact(make), rescale(exact(make))
    one, other = (losses(model, OPTIMIZERS[update](model)) for model in (straight, moved))
    if update == "SGD":
        assert other != pytest.approx(one, rel=1e-3)
    else:
        assert other == pytest.approx(one, rel=1e-9)
