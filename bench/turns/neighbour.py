"""A program that keeps one core busy and leaves it idle in turns of random length: ``python neighbour.py SECONDS``, the
mean of both."""

import random
import sys
import time


def main(mean_seconds: float) -> None:
    draw = random.Random(0)
    while True:
        until = time.monotonic() + draw.expovariate(1 / mean_seconds)
        while time.monotonic() < until:
            pass
        time.sleep(draw.expovariate(1 / mean_seconds))


if __name__ == "__main__":
    main(float(sys.argv[1]))
