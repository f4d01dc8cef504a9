"""Which loops evaluate, what calls them, and where values come from."""

from __future__ import annotations

import ast
import inspect

import pytest

from hotlap.source.lint.context import Context


def context_of(text: str) -> Context:
    text = inspect.cleandoc(text) + "\n"
    return Context(ast.parse(text), text)


def lines_of_evaluation(text: str) -> list[int]:
    return [it.node.lineno for it in context_of(text).evaluation.loops]


def origins_of(text: str) -> list[str]:
    """What the last line, an expression, comes from."""
    context = context_of(text)
    last = context.tree.module.body[-1]
    assert isinstance(last, ast.Expr)
    return [context.tree.source(it.func) for it in context.origins(last.value)]


@pytest.mark.parametrize(
    "name", ["val_loader", "self.test_dataloader", "loaders.validation", "eval_batches", "enumerate(dev_loader)"]
)
def test_a_loop_over_what_is_named_so_evaluates(name: str) -> None:
    text = f"import torch\nmodel.eval()\nfor batch in {name}:\n    model(batch)\n"
    assert lines_of_evaluation(text) == [3]


@pytest.mark.parametrize("name", ["train_loader", "self.values", "evaluators", "latest", "devices"])
def test_a_loop_over_something_else_does_not(name: str) -> None:
    text = f"import torch\nmodel.eval()\nfor batch in {name}:\n    model(batch)\n"
    assert lines_of_evaluation(text) == []


def test_a_loop_that_learns_in_a_function_does_not_evaluate() -> None:
    text = """
        import torch

        def adapt(model, batch):
            model(batch).mean().backward()

        for batch in val_loader:
            model.zero_grad()
            adapt(model, batch)
            scores.append(model(batch))
        """
    assert lines_of_evaluation(text) == []


def test_the_innermost_of_nested_loops_evaluates() -> None:
    text = """
        import torch
        model.eval()
        for split in ("val", "test"):
            for batch in val_loaders[split]:
                scores.append(model(batch))
        """
    assert lines_of_evaluation(text) == [4]


def test_methods_of_lightning_are_its_own_business() -> None:
    text = """
        import lightning as L

        class Net(L.LightningModule):
            def validation_step(self, val_batches, index):
                self.net.eval()
                for batch in val_batches:
                    self.net(batch)
        """
    assert lines_of_evaluation(text) == []


def test_whether_all_ways_to_a_function_are_known() -> None:
    text = """
        def inner(): ...
        def outer(): inner()
        def alone(): ...
        outer()
        """
    context = context_of(text)
    inner, outer, alone = context.tree.module.body[:3]
    assert context.evaluation.leading_to(inner) == ({inner, outer, None}, True)  # type: ignore[arg-type]
    assert context.evaluation.leading_to(alone) == ({alone}, False)  # type: ignore[arg-type]
    assert context.evaluation.leading_to(None) == ({None}, True)


def test_functions_that_call_one_another_come_to_an_end() -> None:
    context = context_of("def a(): b()\ndef b(): a()\n")
    first, second = context.tree.module.body
    assert context.evaluation.leading_to(first) == ({first, second}, True)  # type: ignore[arg-type]
    assert set(context.evaluation.reached_from(first)) == {first, second}


def test_a_value_comes_from_all_that_wrapped_it() -> None:
    text = """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = torch.compile(DDP(Net()).to(device))
        model
        """
    assert origins_of(text) == ["torch.compile", "DDP(Net()).to", "DDP", "Net"]


def test_a_value_may_come_from_either_branch_and_through_functions() -> None:
    text = """
        import torch

        def build(wide):
            return Wide() if wide else Narrow()

        def wrap(model):
            if many:
                model = torch.nn.DataParallel(model)
            return model

        wrap(build(True))
        """
    assert set(origins_of(text)) >= {"wrap", "torch.nn.DataParallel", "build", "Wide", "Narrow"}


def test_names_that_stand_for_one_another_come_to_an_end() -> None:
    assert origins_of("while more:\n    a = b\n    b = a\na") == []
