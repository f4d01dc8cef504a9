"""``hotlap infer``: make a model's calls faster on this machine and keep its outputs right."""

from __future__ import annotations

import argparse

import msgspec

from hotlap import api
from hotlap.cli import options, studies
from hotlap.cli.arguments import Parser, share
from hotlap.cli.goals import add_inference_goal_options, inference_objective_from
from hotlap.cli.launchers import is_usual_interpreter
from hotlap.cli.workload import add_python_option, interpreter_from, workload_from
from hotlap.errors import UsageError
from hotlap.experiment.options import check, with_quick_budget
from hotlap.levers.api import inference_levers
from hotlap.records import USUAL_LEVEL, Workload
from hotlap.study import INFERENCES

_DESCRIPTION = """\
Makes a model with a function of yours and calls it on inputs from another one, again and again, under
torch.no_grad(). Tries what is known to make such calls faster in paired trials, and compares outputs
with those of the model in float32. Recommends what is faster and keeps the quality asked for."""

_EXAMPLES = """\
examples:
  hotlap infer serve.py --port 0               an unmodified script that calls a model in a loop
  hotlap infer serve:make_model --inputs serve:make_inputs
  hotlap infer ./all-MiniLM --inputs serve:make_inputs      the folder of a transformers model
  hotlap infer model.pt2 --inputs serve:make_inputs         a program saved by torch.export
  hotlap infer --quality 0.999 serve:make_model --inputs serve:make_inputs
  hotlap infer --goal latency --p99 20ms serve:make_model --inputs serve:make_inputs
  hotlap infer --lengths serve:make_model --inputs serve:make_inputs
  hotlap infer --metric serve:accuracy serve:make_model --inputs serve:make_inputs
  hotlap infer --only compile,half-weights --budget 10m serve:make_model --inputs serve:make_inputs
  hotlap report                                shows it again

A script: the target is its first model that is called again and again; `hotlap patch` writes what was found
into the script. Functions: the model is a torch.nn.Module. A saved model is loaded like one: never name a
folder or file that you would not load yourself. The inputs are a list or generator, of which the
first 256 are used. Each is a tensor, a tuple of positional arguments, or a mapping of named ones. Quality is
the cosine between outputs and, for logits, the share of inputs with the same largest class; for vectors of
unit length, the share with the same nearest neighbour. A metric gets a dictionary from an input's number to
the model's output, and returns a score for each sample, larger if better. exit code: as of `hotlap tune`."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap infer",
        _DESCRIPTION,
        _EXAMPLES,
        usage="hotlap infer [options] MODULE:MAKE_MODEL --inputs MODULE:MAKE_INPUTS\n"
        "       hotlap infer [options] FOLDER|FILE.pt2 --inputs MODULE:MAKE_INPUTS\n"
        "       hotlap infer [options] SCRIPT.py [arguments of the script]",
    )
    add_python_option(made)
    made.add_argument(
        "model", nargs="?", default="",
        help="the function that returns the model, as module:function; or a transformers folder, or a .pt2 file",
    )  # fmt: skip
    made.add_argument("--inputs", default="", metavar="MODULE:FUNCTION", help="the function that returns the inputs")
    made.add_argument(
        "--quality", type=share, default=USUAL_LEVEL, metavar="SHARE",
        help=f"what cosine and agreement of outputs must reach (default: {USUAL_LEVEL:g})",
    )  # fmt: skip
    made.add_argument(
        "--metric", default="", metavar="MODULE:FUNCTION",
        help="your own metric of outputs; --quality is then the share of it that must be kept",
    )  # fmt: skip
    made.add_argument(
        "--lengths", action="store_true",
        help="show how much of the work is padding, and time batches of similar length",
    )  # fmt: skip
    add_inference_goal_options(made)
    options.add_search_options(made, of_calls=True)
    options.add_quick_option(made)
    options.add_lever_options(made, of_calls=True)
    options.add_output_options(made, plan=False)
    return made


def _parsed(words: list[str]) -> tuple[argparse.Namespace, Workload]:
    """The options, and the script with its arguments or the functions. Raises :class:`UsageError`."""
    made = parser()
    own, target = made.split(words)
    if target and (target[0] == "-m" or target[0].endswith(".py")):
        choices = options.parsed_options(made, own)
        given = [f"--{it}" for it in ("inputs", "metric", "lengths") if getattr(choices, it)]
        if given:
            raise UsageError(
                f"{given[0]} is for functions, and {target[0]} is a script that makes its own inputs.",
                remedy="Leave it out, or name a function that makes the model: hotlap infer MODULE:MAKE_MODEL.",
            )
        return choices, workload_from(target, "infer", interpreter_from(choices))
    choices = options.parsed_options(made, words)
    if not (choices.model and choices.inputs):
        raise UsageError(
            "There is no model and no inputs, or no script.",
            remedy="`hotlap infer SCRIPT.py`, or `hotlap infer MODULE:MAKE_MODEL --inputs MODULE:MAKE_INPUTS`.",
        )
    workload = api.inference_workload(choices.model, choices.inputs, choices.metric, lengths=choices.lengths)
    python = interpreter_from(choices) or workload.python
    return choices, msgspec.structs.replace(workload, python=python, python_named=not is_usual_interpreter(python))


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = _parsed(words)
    if choices.lengths:
        api.check_lengths(choices.goal, choices.p99)
    chosen = with_quick_budget(
        msgspec.structs.replace(
            options.launch_options(choices),
            only=choices.only or (api.LENGTH_LEVERS if choices.lengths else ()),
            skip=choices.skip,
            allow=choices.allow,
            accept_unverified=choices.accept_unverified,
            delta=choices.delta,
            quality=choices.quality,
            objective=inference_objective_from(choices),
            quick=choices.quick,
        )
    )
    check(chosen, inference_levers())
    return studies.new_study(choices, workload, chosen, choices.study / INFERENCES, engine, engine.infer)
