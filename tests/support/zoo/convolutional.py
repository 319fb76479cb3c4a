"""Networks for images: plain, residual, dense, with pools put back, up- and downwards."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, max_pool2d, relu, scaled_dot_product_attention

from symoptim.models.segnet import ConvolutionBlock, EncoderDecoder
from tests.support.zoo.animal import Animal, Lambda, rand, weight


def head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2)]


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((2, 3), (3, 3)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.0), nn.Linear(4, 2))


def residual_block(width: int) -> nn.Module:
    return Lambda(
        lambda self, x: relu(x + self.second(relu(self.norm(self.first(x))))),
        first=nn.Conv2d(width, width, 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(width),
        second=nn.Conv2d(width, width, 3, padding=1, bias=False),
    )


def resnet() -> nn.Module:
    first = [nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU()]
    return nn.Sequential(*first, residual_block(3), *head(3))


def densenet() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = torch.cat([x, self.first(relu(self.norm(x)))], dim=1)
        x = torch.cat([x, self.second(relu(self.wider(x)))], dim=1)
        return self.head(relu(self.last(x)))

    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, bias=False),
        Lambda(
            forward,
            norm=nn.BatchNorm2d(2),
            first=nn.Conv2d(2, 2, 3, padding=1, bias=False),
            wider=nn.BatchNorm2d(4),
            second=nn.Conv2d(4, 2, 3, padding=1, bias=False),
            last=nn.BatchNorm2d(6),
            head=nn.Sequential(*head(6)),
        ),
    )


def unet() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        top = relu(self.down(x))
        below = relu(self.up(relu(self.bottom(self.pool(top)))))
        return self.head(torch.cat([top, below], dim=1))

    return Lambda(
        forward,
        down=nn.Conv2d(1, 3, 3, padding=1),
        pool=nn.MaxPool2d(2),
        bottom=nn.Conv2d(3, 4, 3, padding=1),
        up=nn.ConvTranspose2d(4, 3, 2, stride=2),
        head=nn.Conv2d(6, 2, 1),
    )


def unet_with_attention() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        top = relu(self.down(x))
        low = relu(self.bottom(max_pool2d(top, 2)))
        query, key, value = self.qkv(low).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        mixed = scaled_dot_product_attention(query, key, value).transpose(1, 2).unflatten(-1, low.shape[2:])
        below = relu(self.up(low + self.out(mixed)))
        return self.head(torch.cat([top, below], dim=1))

    return Lambda(
        forward,
        down=nn.Conv2d(1, 2, 3, padding=1),
        bottom=nn.Conv2d(2, 2, 3, padding=1),
        qkv=nn.Conv2d(2, 6, 1),
        out=nn.Conv2d(2, 2, 1),
        up=nn.ConvTranspose2d(2, 2, 2, stride=2),
        head=nn.Conv2d(4, 2, 1),
    )


def segnet() -> nn.Module:
    """Pools whose maxima are put back where they were; kernels are small, to fit into the images."""
    encoder = [ConvolutionBlock(inputs, 2, kernel=3, relu=True) for inputs in (3, 2)]
    decoder = [ConvolutionBlock(2, 2, kernel=3, relu=False) for _ in range(2)]
    return EncoderDecoder(encoder, decoder, nn.Conv2d(2, 2, 1))


def grouped() -> nn.Module:
    layers = [nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Conv2d(4, 4, 2, groups=4), nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 2))


def shufflenet() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = relu(self.first(x))
        x = x.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2)
        x = relu(self.depthwise(x))
        return self.head(relu(self.second(x)))

    return Lambda(
        forward,
        first=nn.Conv2d(2, 4, 1, groups=2),
        depthwise=nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
        second=nn.Conv2d(4, 4, 1, groups=2),
        head=nn.Sequential(*head(4)),
    )


def squeeze_excite() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = relu(self.conv(x))
        gate = torch.sigmoid(self.up(relu(self.down(x.mean(dim=(2, 3))))))
        return self.head(x * gate[:, :, None, None])

    return Lambda(
        forward,
        conv=nn.Conv2d(2, 4, 3),
        down=nn.Linear(4, 2),
        up=nn.Linear(2, 4),
        head=nn.Sequential(*head(4)),
    )


def convnext() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gain * self.down(gelu(self.up(y)))
        return self.head(x + y.permute(0, 3, 1, 2))

    return nn.Sequential(
        nn.Conv2d(1, 3, 1),
        Lambda(
            forward,
            depthwise=nn.Conv2d(3, 3, 3, padding=1, groups=3),
            norm=nn.LayerNorm(3),
            up=nn.Linear(3, 4),
            down=nn.Linear(4, 3),
            gain=weight(3),
            head=nn.Sequential(*head(3)),
        ),
    )


def efficientnet() -> nn.Module:
    """An inverted residual: expand, depthwise, squeeze and excite, project."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = relu(self.depthwise(relu(self.expand(x))))
        gate = torch.sigmoid(self.excite(relu(self.squeeze(y.mean(dim=(2, 3), keepdim=True)))))
        return self.head(x + self.project(y * gate))

    def with_norm(conv: nn.Conv2d) -> nn.Module:
        return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels))

    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, bias=False),
        Lambda(
            forward,
            expand=with_norm(nn.Conv2d(2, 4, 1, bias=False)),
            depthwise=with_norm(nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)),
            squeeze=nn.Conv2d(4, 1, 1),
            excite=nn.Conv2d(1, 4, 1),
            project=with_norm(nn.Conv2d(4, 2, 1, bias=False)),
            head=nn.Sequential(*head(2)),
        ),
    )


CONVOLUTIONAL: dict[str, Animal] = {
    "vgg training": Animal(vgg, rand(3, 2, 4, 4), slow=True),
    "vgg evaluation": Animal(lambda: vgg().eval(), rand(3, 2, 4, 4), slow=True),
    "resnet training": Animal(resnet, rand(3, 2, 4, 4)),
    "resnet evaluation": Animal(lambda: resnet().eval(), rand(3, 2, 4, 4), slow=True),
    "densenet": Animal(densenet, rand(2, 1, 4, 4), slow=True),
    "u-net": Animal(unet, rand(2, 1, 4, 4)),
    "u-net with attention": Animal(unet_with_attention, rand(2, 1, 4, 4), slow=True),
    "segnet": Animal(segnet, rand(2, 3, 8, 8), slow=True),
    "segnet evaluation": Animal(lambda: segnet().eval(), rand(2, 3, 8, 8), slow=True),
    "grouped and depthwise": Animal(grouped, rand(3, 2, 6, 6)),
    "shufflenet": Animal(shufflenet, rand(3, 2, 4, 4), slow=True),
    "squeeze and excite": Animal(squeeze_excite, rand(3, 2, 4, 4)),
    "convnext": Animal(convnext, rand(3, 1, 4, 4), slow=True),
    "efficientnet training": Animal(efficientnet, rand(3, 1, 4, 4), slow=True),
    "efficientnet evaluation": Animal(lambda: efficientnet().eval(), rand(3, 1, 4, 4), slow=True),
}
