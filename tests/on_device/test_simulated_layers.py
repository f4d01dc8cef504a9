"""Layers whose kernels torch has for CUDA alone: they compute what the host's do, in fewer launches."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

RECURRENT = """
import json, warnings
import torch
from torch import nn

warnings.simplefilter("ignore")  # a CPU build has no cuDNN
differences = {}
for kind in (nn.LSTM, nn.GRU):
    for bias in (True, False):
        torch.manual_seed(0)
        layer, values = kind(6, 5, num_layers=2, bias=bias, batch_first=True), torch.randn(3, 7, 6)
        there = kind(6, 5, num_layers=2, bias=bias, batch_first=True).cuda()
        there.load_state_dict(layer.state_dict())
        results = []
        for it, given in ((layer, values.clone()), (there, values.cuda())):
            given.requires_grad_()
            output = it(given)[0]
            (output * output.detach().roll(1, 0)).sum().backward()
            results.append([output, given.grad, *(one.grad for one in it.parameters())])
        differences[f"{kind.__name__} {bias}"] = max((a - b.cpu()).abs().max().item() for a, b in zip(*results))
with torch.profiler.profile() as profile:
    there(values.cuda())
names = {it.name for it in profile.events()}
print(json.dumps([differences, "aten::_thnn_fused_gru_cell" in names]))
"""


def test_recurrent_cells_are_one_kernel_and_compute_what_the_hosts_do(device: Any, run: Any) -> None:
    differences, is_fused = json.loads(run(device(), RECURRENT).splitlines()[-1])
    assert len(differences) == 4 and max(differences.values()) < 1e-5
    assert is_fused
