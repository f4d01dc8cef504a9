"""Gradients in all their ways, and tensors of all kinds."""

import functools
import threading

import torch
import torch.nn.functional as F
from common import Wrapped, case, inputs, layer, trained
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint


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
