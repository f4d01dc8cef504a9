"""What torch compiles, traces, scripts and exports."""

import functools

import torch
from common import case, inputs, layer, trained
from torch import nn


@functools.partial(case, group="compiled")
def compiled_function():
    return compiled(cosines)(inputs(4, 4, grad=True)).sum()


@functools.partial(case, group="compiled")
def compiled_without_breaks():
    return compiled(cosines, fullgraph=True)(inputs(4, 4))


@functools.cache
def compiled(function, **options):
    return torch.compile(function, backend="eager", **options)


def cosines(it):
    return it.cos() @ it.sin()


@functools.partial(case, group="compiled")
def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention as attend

    query = inputs(1, 2, 16, 8)
    return attend(query, query, query)


@functools.partial(case, group="compiled")
def flex_attention_with_a_mask():
    from torch.nn.attention.flex_attention import create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as attend

    query = inputs(1, 2, 128, 8)
    mask = create_block_mask(lambda batch, head, one, other: one >= other, 1, 1, 128, 128, device="cpu")
    return attend(query, query, query, block_mask=mask)


@case
def traced():
    return torch.jit.trace(layer("Linear", 8, 8), inputs(2, 8))(inputs(2, 8))


@case
def scripted():
    return trained(torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU())), torch.zeros(2, 8)) * 0 + 1


@case
def exported():
    return torch.export.export(layer("Linear", 8, 8), (inputs(2, 8),)).module()(inputs(2, 8))


@case
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return_size = nn.Linear(8, 8)(torch.randn(2, 8)).shape[1]
    return torch.ones(1) * return_size
