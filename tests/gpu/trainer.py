"""A training loop without hotlap; each flag plants one thing that the tests of this folder look for.

Prints two JSON objects: its own measurements in the sixth step, and at its end the losses.
"""

import argparse
import json
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["mlp", "conv"], default="mlp")
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--busy", type=float, default=0.0, help="seconds of kernels in each forward pass")
parser.add_argument("--sleep", type=float, default=0.0, help="seconds that fetching each batch takes")
parser.add_argument("--pinned", action="store_true", help="copy as one should")
parser.add_argument("--forbid-waiting", action="store_true", help="between the third step and the thirty-first")
parser.add_argument("--hold", type=int, default=0, help="bytes to keep on the device")
parser.add_argument("--hog", action="store_true", help="ask for more memory than there is, in step 21")
args = parser.parse_args()

CLASSES = 10
device = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    """Returns its loss, as models of Hugging Face do, and its output."""

    def __init__(self, kind):
        super().__init__()
        if kind == "conv":
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(32, 32, 3, padding=1, stride=2),
                nn.GELU(),
                nn.AdaptiveAvgPool2d(4),
                nn.Flatten(),
                nn.Linear(512, CLASSES),
            )
        else:
            self.layers = nn.Sequential(nn.Linear(768, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU())
            self.layers.append(nn.Linear(256, CLASSES))
        self.work = nothing

    def forward(self, inputs, targets):
        self.work()
        output = self.layers(inputs)
        # Autocast leaves log-softmax in bfloat16, whose rounding is the same for all samples of an untrained model.
        return nn.functional.cross_entropy(output.float(), targets), output


def nothing():
    pass


def busy_work(seconds):
    """A function that keeps the device busy for about this long, and how long it really takes."""
    left = torch.randn(4096, 4096, device=device)
    product = torch.empty_like(left)

    def multiply(times):
        with torch.no_grad():
            for _ in range(times):
                torch.mm(left, left, out=product)

    def measure(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        multiply(times)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / times

    measure(200)  # until the clocks are up
    times = max(1, math.ceil(seconds / measure(50)))
    return (lambda: multiply(times)), times * measure(times)


def slow_collate(samples):
    time.sleep(args.sleep)
    return default_collate(samples)


def data(kind):
    """Noisy labels, so that the loss stays away from zero."""
    inputs = torch.randn(2048, 768)
    labels = (inputs @ torch.randn(768, CLASSES) + 20 * torch.randn(2048, CLASSES)).argmax(dim=1)
    return TensorDataset(inputs.view(-1, 3, 16, 16) if kind == "conv" else inputs, labels)


def main():
    # The thread that pins batches sets this for the whole process. A simulated device computes on the host, and with
    # another number of threads its products would be rounded differently.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    seen = {}
    collate = slow_collate if args.sleep else None
    loader = DataLoader(data(args.model), batch_size=32, shuffle=True, pin_memory=args.pinned, collate_fn=collate)
    model = Model(args.model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if args.busy:
        model.work, seen["busy"] = busy_work(args.busy)
    held = torch.ones(args.hold, dtype=torch.uint8, device=device)
    if args.forbid_waiting:
        seen["would_notice"] = notices_waiting()
    losses = []
    while len(losses) < args.steps:
        for inputs, targets in loader:
            if args.forbid_waiting and len(losses) in (2, 30):
                torch.cuda.set_sync_debug_mode("error" if len(losses) == 2 else "default")
            if args.hog and len(losses) == 20:
                held = torch.empty(2**50, dtype=torch.uint8, device=device)
            inputs = inputs.to(device, non_blocking=args.pinned)
            targets = targets.to(device, non_blocking=args.pinned)
            optimizer.zero_grad()
            loss, output = model(inputs, targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
            if len(losses) == 6:
                weights = [it for it in model.parameters() if it.dim() == 4]
                seen["output"] = str(output.dtype)
                seen["channels_last"] = all(it.is_contiguous(memory_format=torch.channels_last) for it in weights)
                seen["fused"] = bool(optimizer.param_groups[0].get("fused"))
                seen["precision"] = torch.get_float32_matmul_precision()
                print(json.dumps(seen), flush=True)
            if len(losses) == args.steps:
                break
    print(json.dumps({"losses": torch.stack(losses).tolist(), "held": held.numel()}), flush=True)


def notices_waiting():
    """Whether torch's switch, on which the test rests, really catches a read that waits."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.ones(1, device=device).item()
    except RuntimeError:
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


if __name__ == "__main__":
    main()
