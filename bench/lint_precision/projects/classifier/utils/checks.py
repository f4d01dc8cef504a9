import math


def check_finite(loss):
    if not math.isfinite(loss):  # planted: HL207
        raise SystemExit("the loss is not finite")
