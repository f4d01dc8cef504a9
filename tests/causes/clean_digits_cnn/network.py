from torch import nn


def stage(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class DigitNet(nn.Module):
    def __init__(self, widths, classes):
        super().__init__()
        pairs = zip([16, *widths[:-1]], widths, strict=True)
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.stages = nn.Sequential(*(stage(*pair) for pair in pairs))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))

    def forward(self, images):
        return self.head(self.stages(self.stem(images)))
