"""The launcher gets its order unchanged."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from hotlap.sandbox.order import Order, decoded, encoded

TEXTS = st.binary(max_size=40).filter(lambda it: b"\0" not in it).map(os.fsdecode)


@given(
    command=st.lists(TEXTS, min_size=1, max_size=4),
    directory=TEXTS,
    shared=st.lists(TEXTS, max_size=3),
    pid_namespace=st.booleans(),
)
def test_orders_come_back(command: list[str], directory: str, shared: list[str], pid_namespace: bool) -> None:
    order = Order(
        command=command,
        directory=directory,
        mode="namespaces",
        shared=shared,
        shared_at=shared,
        pid_namespace=pid_namespace,
    )
    again = Order.decoded(order.encoded())
    assert {name: list(it) if isinstance(it, (list, tuple)) else it for name, it in vars(again).items()} == {
        name: list(it) if isinstance(it, (list, tuple)) else it for name, it in vars(order).items()
    }


def test_what_was_cut_short_is_left_out() -> None:
    text = encoded([("layer", "/home/me"), ("layer", "/data")])
    assert decoded(text[:-3]) == [("layer", "/home/me")]
