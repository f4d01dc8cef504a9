"""Models that few write, what they are given and give back, and what changes their weights."""

import copy
import dataclasses
import functools
import io
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import torch
from common import Wrapped, case, inputs, layer, trained
from torch import nn
from torch.nn.utils import parametrizations, rnn

Batch = namedtuple("Batch", "x y")


@dataclasses.dataclass
class Outputs:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Opaque:
    """It lets nothing be read that it was not asked for."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __getattr__(self, name):
        raise KeyError(name)

    def __len__(self):
        raise TypeError("it has no length")

    def __eq__(self, other):
        raise RuntimeError("it is not compared")

    __hash__ = None


@case
def named_tuple_in_and_dataclass_out():
    return trained(Wrapped(lambda own, it: Outputs(own.inner(it.x))), Batch(inputs(4, 8), torch.ones(4)))


@case
def only_named_arguments():
    return trained(Wrapped(lambda own, *, batch, flag=False: {"y": own.inner(batch["x"])}), batch={"x": inputs(4, 8)})


@case
def object_that_lets_nothing_be_read():
    return trained(Wrapped(lambda own, it: own.inner(it.x)), Opaque(inputs(4, 8)))


@case
def nothing_but_python_objects():
    return trained(Wrapped(lambda own, rows: own.inner(torch.tensor(rows))), [[float(it) for it in range(8)]] * 3)


@case
def strings_numpy_and_none():
    return trained(
        Wrapped(lambda own, names, x, none: own.inner(torch.from_numpy(x))), ["a"], inputs(2, 8).numpy(), None
    )


@case
def packed_sequence():
    torch.manual_seed(1)
    words = rnn.pack_sequence([inputs(4, 8), inputs(3, 8)])
    return trained(Wrapped(lambda own, it: own.inner(it.data)), words)


@case
def generator_as_output():
    return trained(Wrapped(lambda own, it: (own.inner(it) for _ in range(2))), inputs(2, 8))


@case
def list_that_changes():
    given = [inputs(2, 8), inputs(2, 8)]
    return trained(Wrapped(lambda own, them: own.inner(them.pop())), given) + len(given)


@case
def simple_namespace_and_ordered_dict():
    batch = OrderedDict(x=inputs(2, 8), more=SimpleNamespace(y=inputs(2, 8)))
    return trained(Wrapped(lambda own, it: own.inner(it["x"]) + it["more"].y), batch)


class Difficult(nn.Module):
    """Its attributes are found by asking another module, and its length is not known."""

    def __init__(self):
        super().__init__()
        self.inner = layer("Linear", 8, 8)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["inner"], name)

    def __len__(self):
        return 0

    def __bool__(self):
        raise RuntimeError("it is neither true nor false")

    def forward(self, it):
        return self.inner(it)


@case
def module_that_asks_another():
    return trained(Difficult(), inputs(2, 8))


@case
def lazy_module():
    model = nn.LazyLinear(3)
    model(inputs(2, 8))
    return torch.ones(1) * model.weight.shape[1]


@case
def forward_as_an_attribute():
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(8))
    model.forward = lambda it: it * model.weight
    return trained(model, inputs(2, 8))


@case
def spectral_and_weight_norm():
    torch.manual_seed(0)
    one = parametrizations.spectral_norm(nn.Linear(8, 8))
    return trained(parametrizations.weight_norm(one, name="bias", dim=None), inputs(2, 8)) * 0 + 1


@case
def copied_and_saved():
    model, file = copy.deepcopy(layer("Linear", 8, 8)), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    return trained(model, inputs(2, 8))


@case
def averaged_weights():
    model = torch.optim.swa_utils.AveragedModel(layer("Linear", 8, 8))
    model.update_parameters(layer("Linear", 8, 8))
    return model(inputs(2, 8))


@functools.partial(case, group="optimizers")
def optimizer_with_closure():
    torch.manual_seed(3)
    model, x = nn.Linear(8, 1), inputs(4, 8)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return optimizer.step(closure)


@functools.partial(case, group="optimizers")
def optimizer_without_gradients():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    return torch.ones(1)


@case
def weights_changed_by_hand():
    model = copy.deepcopy(layer("Linear", 8, 8))
    trained(model, inputs(4, 8))
    with torch.no_grad():
        for it in model.parameters():
            it -= 0.1 * it.grad
    return model.weight
