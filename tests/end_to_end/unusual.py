"""A script that does what few training scripts do, in its training steps; it prints what comes of each, as one line.

Each of the first steps does the same; with ``--also compiled optimizers``, these too. The loss
of step ``--nan-at`` is NaN, and ``--why`` prints the traceback of what failed.
"""

import argparse
import copy
import dataclasses
import functools
import io
import threading
import traceback
import warnings
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
STEPS_WITH_ALL = 6
CASES = {"": [], "compiled": [], "optimizers": []}


def case(function, group=""):
    CASES[group].append(function)
    return function


@functools.cache
def layer(name, *sizes):
    """The same layer in each step."""
    torch.manual_seed(0)
    return getattr(nn, name)(*sizes)


def inputs(*sizes, grad=False):
    return torch.randn(*sizes, requires_grad=grad)


def trained(module, *arguments, **named):
    """A step of a model of its own: forward, backward, and what the gradients are."""
    module.zero_grad()
    loss = first_tensor(module(*arguments, **named)).float().square().mean()
    loss.backward()
    return sum(it.grad.abs().sum() for it in module.parameters() if it.grad is not None) + loss.detach()


def first_tensor(value):
    if isinstance(value, torch.Tensor):
        return value.values() if value.is_nested and value.layout is torch.jagged else value
    if isinstance(value, dict):
        return first_tensor(next(iter(value.values())))
    if dataclasses.is_dataclass(value):
        return first_tensor(next(iter(vars(value).values())))
    return first_tensor(next(iter(value)))


# -- gradients ------------------------------------------------------------------------------


@case
def gradient_penalty():
    model, mid = layer("Linear", 8, 1), inputs(4, 8, grad=True)
    (found,) = torch.autograd.grad(model(mid).sum(), mid, create_graph=True)
    penalty = (found.norm(2, dim=1) - 1).square().mean()
    model.zero_grad()
    penalty.backward()
    return model.weight.grad.sum()


@case
def physics_informed():
    model = layer("Linear", 2, 1)
    place = inputs(16, 2, grad=True)
    u = torch.tanh(model(place))
    (du,) = torch.autograd.grad(u, place, torch.ones_like(u), create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 0], place, torch.ones_like(du[:, 0]), create_graph=True)
    model.zero_grad()
    (ddu[:, 0] - du[:, 1]).square().mean().backward()
    return model.weight.grad.sum()


@case
def gradients_of_a_batch_at_once():
    place = inputs(8, grad=True)
    return torch.autograd.grad(layer("Linear", 8, 8)(place), place, torch.eye(8), is_grads_batched=True)[0]


@case
def jacobian():
    return torch.autograd.functional.jacobian(layer("Linear", 8, 8), inputs(8), vectorize=True)


@case
def gradients_per_sample():
    model = layer("Linear", 8, 8)
    weights = {name: it.detach() for name, it in model.named_parameters()}

    def loss(weights, one):
        return torch.func.functional_call(model, weights, (one,)).square().sum()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, inputs(4, 8))["weight"]


@case
def hessian():
    return torch.func.hessian(lambda it: (it @ it.T).sum())(inputs(3, 3))


@case
def forward_mode():
    with forward_ad.dual_level():
        dual = layer("Linear", 8, 8)(forward_ad.make_dual(inputs(3, 8), inputs(3, 8)))
        return forward_ad.unpack_dual(dual).tangent


@case
def inner_steps_of_a_learned_start():
    model = layer("Linear", 8, 1)
    weights = dict(model.named_parameters())
    for _ in range(2):
        loss = torch.func.functional_call(model, weights, (inputs(4, 8),)).square().mean()
        found = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)
        weights = {name: it - 0.1 * own for (name, it), own in zip(weights.items(), found, strict=True)}
    model.zero_grad()
    torch.func.functional_call(model, weights, (inputs(4, 8),)).square().mean().backward()
    return model.weight.grad


@case
def recomputed():
    return trained(Wrapped(lambda own, it: checkpoint(own.inner, it, use_reentrant=False)), inputs(4, 8, grad=True))


@case
def recomputed_by_a_backward_within_it():
    return trained(Wrapped(lambda own, it: checkpoint(own.inner, it, use_reentrant=True)), inputs(4, 8, grad=True))


@case
def saved_elsewhere():
    with torch.autograd.graph.saved_tensors_hooks(lambda it: it.numpy(), torch.from_numpy):
        loss = F.linear(inputs(2, 8), torch.ones(8, 8, requires_grad=True).sin()).square().sum()
    return loss


@case
def backward_twice():
    model = layer("Linear", 8, 8)
    model.zero_grad()
    loss = model(inputs(2, 8)).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return model.weight.grad


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, it):
        context.save_for_backward(it)
        return 2 * it

    @staticmethod
    def backward(context, gradient):
        return 3 * gradient


@case
def function_of_its_own():
    place = inputs(3, grad=True)
    Double.apply(place).sum().backward()
    return place.grad


@case
def hook_that_changes_gradients():
    model, place = nn.Linear(4, 4), inputs(2, 4)
    model.register_full_backward_hook(lambda own, inputs, outputs: None)
    model.weight.register_hook(lambda it: it * 2)
    return trained(model, place) * 0 + 1


@case
def backward_in_a_thread():
    model, found = layer("Linear", 8, 8), []
    place = inputs(2, 8)
    thread = threading.Thread(target=lambda: found.append(trained(model, place)))
    thread.start()
    thread.join()
    return found[0]


# -- tensors ----------------------------------------------------------------------------------


@case
def nested():
    words = torch.nested.nested_tensor([inputs(3, 8), inputs(5, 8)], layout=torch.jagged)
    return trained(layer("Linear", 8, 8), words)


@case
def nested_attention():
    parts = [torch.nested.nested_tensor([inputs(n, 2, 4) for n in (3, 5)], layout=torch.jagged) for _ in range(3)]
    return F.scaled_dot_product_attention(*(it.transpose(1, 2) for it in parts)).values()


@case
def nested_of_the_first_kind():
    words = torch.nested.nested_tensor([inputs(3, 8), inputs(5, 8)])
    return trained(Wrapped(lambda own, it: own.inner(it).to_padded_tensor(0.0)), words)


@case
def complex_numbers():
    weights = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    (weights @ weights).abs().sum().backward()
    return weights.grad.abs()


@case
def sparse_products():
    adjacency = torch.eye(6).to_sparse()
    return trained(Wrapped(lambda own, it: torch.sparse.mm(adjacency, own.inner(it))), inputs(6, 8))


@functools.partial(case, group="optimizers")
def sparse_gradients():
    words = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(words.parameters())
    words(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    return words.weight.detach() * 0 + 1


class Subclass(torch.Tensor):
    pass


@case
def tensors_of_a_class_of_its_own():
    return trained(layer("Linear", 8, 8), inputs(2, 8).as_subclass(Subclass))


class Logged(torch.Tensor):
    """It has a dispatch of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        bare = torch.utils._pytree.tree_map(lambda it: it.inner if isinstance(it, Logged) else it, (args, kwargs or {}))
        return function(*bare[0], **bare[1])


@case
def tensors_with_a_dispatch_of_their_own():
    return trained(layer("Linear", 8, 8), Logged(inputs(2, 8)))


@case
def quantized():
    return torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8))


@case
def no_storage():
    return torch.ones(2) * nn.Linear(8, 8, device="meta")(torch.randn(2, 8, device="meta")).shape[0]


@case
def zero_samples():
    model = layer("Linear", 8, 8)
    model.zero_grad()
    model(inputs(0, 8)).sum().backward()
    return model.weight.grad


@case
def numbers_without_dimensions():
    return trained(layer("Bilinear", 1, 1, 1), inputs(1), inputs(1))


# -- compiled and traced ----------------------------------------------------------------------


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


# -- models and what they are given -----------------------------------------------------------


class Wrapped(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.inner, self._call = layer("Linear", 8, 8), call

    def forward(self, *args, **kwargs):
        return self._call(self, *args, **kwargs)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--also", nargs="*", default=[], choices=["compiled", "optimizers"])
    parser.add_argument("--nan-at", type=int, default=-1)
    parser.add_argument("--why", action="store_true")
    options = parser.parse_args()
    cases = [one for group in ("", *options.also) for one in CASES[group]]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(options.steps):
        loss = F.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
        if step == options.nan_at:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        if step < STEPS_WITH_ALL:
            do_all(step, cases, options.why)
        optimizer.step()


def do_all(step, cases, why):
    for number, one in enumerate(cases):
        with torch.random.fork_rng():
            torch.manual_seed(number)
            try:
                came = f"{one().detach().double().sum().item():.9e}"
            except Exception as error:
                came = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
                if why:
                    traceback.print_exc()
        print("came", step, one.__name__, came, flush=True)


if __name__ == "__main__":
    main()
