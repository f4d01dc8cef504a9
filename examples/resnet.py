"""Train a ResNet on a folder of JPEG files.

    python resnet.py                                                    # small, fine on a laptop
    python resnet.py --depth 50 --width 64 --image-size 224 --batch-size 64

The folder is made on the first run: pictures of eight kinds of shapes, drawn at random. Nothing is downloaded.
"""

import argparse
import math
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHAPES = ["circle", "ring", "square", "frame", "triangle", "star", "cross", "stripes"]


def draw(shape, size, rng):
    """One picture: the shape in any size, place, turn and colour, on a darker background of noise."""
    noise = np.frombuffer(rng.randbytes(8 * 8 * 3), dtype=np.uint8).reshape(8, 8, 3)
    picture = Image.fromarray(noise // 3).resize((size, size), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(picture)
    color = tuple(rng.randrange(100, 256) for _ in range(3))
    r = size * rng.uniform(0.22, 0.38)
    x, y, turn = rng.uniform(r, size - r), rng.uniform(r, size - r), rng.uniform(0, math.tau)

    def corners(count, radii):
        return [
            (
                x + radii[i % len(radii)] * math.cos(turn + i * math.tau / count),
                y + radii[i % len(radii)] * math.sin(turn + i * math.tau / count),
            )
            for i in range(count)
        ]

    width = int(r / 3)
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=color)
    elif shape == "ring":
        pen.ellipse((x - r, y - r, x + r, y + r), outline=color, width=width)
    elif shape == "square":
        pen.polygon(corners(4, [r]), fill=color)
    elif shape == "frame":
        pen.polygon(corners(4, [r]), outline=color, width=width)
    elif shape == "triangle":
        pen.polygon(corners(3, [r]), fill=color)
    elif shape == "star":
        pen.polygon(corners(10, [r, r / 2.5]), fill=color)
    elif shape == "cross":
        points = corners(4, [r])
        pen.line([points[0], points[2]], fill=color, width=width)
        pen.line([points[1], points[3]], fill=color, width=width)
    else:
        for shift in (-0.7, 0.0, 0.7):
            dx, dy = math.cos(turn) * r, math.sin(turn) * r
            cx, cy = x - dy * shift, y + dx * shift
            pen.line([(cx - dx, cy - dy), (cx + dx, cy + dy)], fill=color, width=max(2, width // 2))
    return picture


def make_folder(folder, per_class, size):
    rng = random.Random(0)
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            draw(shape, size, rng).save(folder / shape / f"{number:05d}.jpg", quality=90)
    (folder / "complete").touch()


class JpegFolder(Dataset):
    def __init__(self, files, image_size, augment):
        self.files = files
        self.image_size = image_size
        self.augment = augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        image = Image.open(file).convert("RGB")
        image = self.random_crop(image) if self.augment else image.resize((self.image_size, self.image_size))
        if self.augment:
            if random.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            image = self.color_jitter(image)
        pixels = np.asarray(image, dtype=np.float32) / 255
        pixels = (pixels - 0.5) / 0.25
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), SHAPES.index(file.parent.name)

    def random_crop(self, image):
        width, height = image.size
        side = int(min(width, height) * random.uniform(0.75, 1.0))
        left, top = random.randint(0, width - side), random.randint(0, height - side)
        box = (left, top, left + side, top + side)
        return image.resize((self.image_size, self.image_size), Image.Resampling.BILINEAR, box=box)

    def color_jitter(self, image):
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(random.uniform(0.6, 1.4))
        return image


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(inputs, 4 * width, stride)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + self.shortcut(x))


def shortcut(inputs, outputs, stride):
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, block, depths, width, classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers = []
        inputs = width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(block(inputs, width * 2**stage, stride))
                inputs = width * 2**stage * block.expansion
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.fc(self.pool(self.layers(self.stem(x))).flatten(1))


def accuracy(model, loader, device):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            predicted = model(images.to(device)).argmax(dim=1).cpu()
            correct += (predicted == labels).sum().item()
            total += len(labels)
    return correct / total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of JPEG files (made if it is not there)")
    parser.add_argument("--per-class", type=int, default=160, help="pictures to draw for each class")
    parser.add_argument("--file-size", type=int, default=400, help="width and height of the files")
    parser.add_argument("--depth", type=int, choices=[18, 50], default=18)
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage (64 in the paper)")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    folder = args.data or Path(tempfile.gettempdir()) / f"shapes-{args.file_size}-{args.per_class}"
    if not (folder / "complete").exists():
        print(f"drawing {args.per_class * len(SHAPES)} pictures into {folder} ...")
        make_folder(folder, args.per_class, args.file_size)
    files = sorted(folder.glob("*/*.jpg"))
    random.shuffle(files)
    boundary = len(files) // 10
    train_data = JpegFolder(files[boundary:], args.image_size, augment=True)
    test_data = JpegFolder(files[:boundary], args.image_size, augment=False)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True, num_workers=0)
    test_loader = DataLoader(test_data, batch_size=args.batch_size, num_workers=0)

    if args.depth == 18:
        model = ResNet(BasicBlock, [2, 2, 2, 2], args.width, len(SHAPES))
    else:
        model = ResNet(Bottleneck, [3, 4, 6, 3], args.width, len(SHAPES))
    model = model.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9, weight_decay=1e-4)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(train_data)} pictures, {parameters / 1e6:.1f} M parameters, on {device}")

    step = 0
    for epoch in range(args.epochs):
        model.train()
        started = time.time()
        running_loss, batches = 0.0, 0
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            batches += 1
            step += 1
            if step == args.steps:
                break
        print(
            f"epoch {epoch + 1}  loss {running_loss / batches:.4f}  "
            f"accuracy {accuracy(model, test_loader, device):.3f}  {time.time() - started:.1f} s"
        )
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
