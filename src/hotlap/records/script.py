"""What was observed in the script."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.generation import GenerationFacts
from hotlap.records.lengths import LengthFacts

SiteRole: TypeAlias = Literal[
    "loader", "optimizer", "model", "compile", "backward", "step", "clip", "copy", "scheduler", "operation", "call"
]


SampleSource: TypeAlias = Literal["loader", "batch", "inputs", "tokens", "none", ""]
"""What samples were counted by: the batch size of the DataLoader, the first dimension of what a DataLoader without one
delivered, the first dimension of the model's inputs (a guess), the tokens that ``generate()`` added, nothing (each step
counts as one); empty in studies that did not record it."""

GUESSED_SAMPLES: frozenset[SampleSource] = frozenset({"inputs", "none"})
"""Sources that only guess: then the time or price of a sample is not reported."""


ENGINE_PACKAGES: Final = (
    "nncf",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxscript",
    "openvino",
    "tensorrt",
    "torch_tensorrt",
    "torchao",
)
"""The packages that inference engines need: each is imported by its own name, but for a variant of another one, whose
name has a hyphen and is that of its distribution."""


class CallSite(Record, frozen=True, kw_only=True):
    """A line of the user's code where something that matters was called.

    Where it is known which call of the line it was, ``column``, ``end_line`` and ``end_column`` are where its
    expression begins and ends, as :mod:`ast` counts (columns in bytes of UTF-8, from 0).
    """

    role: SiteRole
    file: str
    line: int
    function: str = ""
    what: str = ""
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class FileDigest(Record, frozen=True, kw_only=True):
    """The contents of a source file when a script was run from it."""

    file: str
    sha256: str


class LoaderFacts(Record, frozen=True, kw_only=True):
    """One DataLoader that the script read batches from.

    ``draws_random`` says whether fetching a batch in the main process consumed torch, numpy or
    ``random`` numbers: then moving the fetch into workers changes what is drawn.
    ``batch_bytes`` is the size of one batch's tensors. ``trains`` says whether a backward pass followed on its batches;
    None in studies that did not record it. ``evaluates`` says that its batches were evaluated, and ``starts`` how often
    the script began to read it.
    """

    dataset: str
    batch_size: int | None = None
    workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    iterable: bool = False
    length: int | None = None
    draws_random: bool = False
    batch_bytes: int = 0
    trains: bool | None = None
    evaluates: bool = False
    starts: int = 0
    site: CallSite | None = None


class EvaluationFacts(Record, frozen=True, kw_only=True):
    """The first evaluation that was seen between training steps: forward passes of the model without a backward pass.

    ``forwards`` counts those of all evaluations; ``with_gradients`` says that the first one recorded a graph for a
    backward pass. ``site`` is the line that called the model, or None where a framework did, or where only its loader
    was seen.
    """

    forwards: int = 0
    with_gradients: bool = False
    autocast_dtype: str = ""
    site: CallSite | None = None


class CheckpointFacts(Record, frozen=True, kw_only=True):
    """The calls that saved something between the first training step and the last, and the line of the first."""

    saves: int = 0
    site: CallSite | None = None


class OptimizerFacts(Record, frozen=True, kw_only=True):
    """One optimizer; ``fused`` and ``foreach`` as the script asked for them (None: left open).

    ``state_bytes`` is what it keeps for its weights (None: not observed).
    """

    kind: str
    parameters: int
    learning_rate: float
    fused: bool | None = None
    foreach: bool | None = None
    supports_fused: bool = False
    supports_foreach: bool = False
    from_torch: bool = True
    state_bytes: int | None = None
    site: CallSite | None = None


class BlockFacts(Record, frozen=True, kw_only=True):
    """The repeated blocks of a model: ``count`` modules of the class ``kind``.

    ``place`` is how source reaches them from the model (``.layers``), empty where it cannot be written. ``switch`` is
    the model's own method that recomputes their activations, ``switch_place`` the module that has it, and
    ``switch_skips`` says whether it can leave out every second block. ``recomputed`` says that the script recomputes
    them already, ``updates_buffers`` that a forward pass changed their buffers, as batch norm does.
    """

    kind: str
    count: int
    place: str = ""
    switch: str = ""
    switch_place: str = ""
    switch_skips: bool = False
    recomputed: bool = False
    updates_buffers: bool = False


class RepeatedModules(Record, frozen=True, kw_only=True):
    """Consecutive modules of the class ``kind``, at least two of which have parameters of the same shapes.

    ``place`` is how source reaches them from the model (``.layers``), empty where it cannot be written.
    ``forward_of_torch`` says that their class defines no forward of its own, and ``compiled`` that the script compiles
    each of them.
    """

    kind: str
    count: int
    place: str = ""
    forward_of_torch: bool = False
    compiled: bool = False


class ModelFacts(Record, frozen=True, kw_only=True):
    """One root module: the outermost module that owns parameters an optimizer holds.

    ``input_shapes`` are the distinct shapes of its tensor arguments in the observed steps, at most 32, and
    ``shapes_vary`` says that one call had others than another (None: not observed, by an earlier version).
    ``outputs_by_sample`` says that each tensor of its outputs had one entry for each sample of its inputs, and
    ``forward_of_torch`` that its own class defines no forward, as that of an ``nn.Sequential``;
    ``compile_of_its_own`` that its ``compile()`` is not that of ``nn.Module``. ``trains`` says that some
    of its modules compute as in training: dropout, or normalisation by the batch. ``repeated`` are its repeated modules
    that can share compiled code.
    """

    kind: str
    parameters: int
    parameter_bytes: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    convolutions: int = 0
    linears: int = 0
    recurrent: int = 0
    batch_norms: int = 0
    dropout: tuple[float, ...] = ()
    trainable: int = 0
    compiled: bool = False
    channels_last: bool = False
    attention: str = ""
    transformers_model: bool = False
    input_shapes: tuple[tuple[int, ...], ...] = ()
    shapes_vary: bool | None = None
    flops_per_step: float | None = None
    blocks: BlockFacts | None = None
    outputs_by_sample: bool = False
    forward_of_torch: bool = False
    compile_of_its_own: bool = False
    trains: bool = False
    repeated: tuple[RepeatedModules, ...] = ()
    site: CallSite | None = None


class DataParallelFacts(Record, frozen=True, kw_only=True):
    """One ``DistributedDataParallel``, with the arguments that the script gave it.

    ``bucket_cap_mb`` is None where torch chooses. ``gradient_bytes`` are those of the gradients that each backward pass
    exchanges. ``communication_hook`` names the function that the script registered to exchange them, and
    ``unsynchronised_backwards`` counts the backward passes under ``no_sync`` in the observed steps. ``bypassed_at`` is
    where the script calls the wrapped model itself, if it never called the wrapper in these steps. ``weights_digest``
    is a digest of this process's weights at the end (empty: none was made).
    """

    backend: str = ""
    processes: int = 1
    gradient_bytes: int = 0
    bucket_cap_mb: float | None = None
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    communication_hook: str = ""
    unsynchronised_backwards: int = 0
    bypassed_at: CallSite | None = None
    weights_digest: str = ""
    site: CallSite | None = None


class ShardedFacts(Record, frozen=True, kw_only=True):
    """A model whose weights the script itself shares between processes.

    ``units`` are the modules whose weights are gathered together. ``reshards`` says that those within the model give
    their gathered weights up after forward (None: unknown). ``mesh`` is the size of each dimension of the processes
    that share it, ``offloads`` says that its weights are kept in host memory, and ``param_dtype`` is the format of the
    script's policy of mixed precision (empty: none). The other options are those of FSDP1.
    """

    api: Literal["fsdp1", "fsdp2"]
    units: int = 1
    processes: int = 1
    reshards: bool | None = None
    forward_prefetch: bool = False
    backward_prefetch: str = ""
    limit_all_gathers: bool = True
    strategy: str = ""
    use_orig_params: bool = False
    mesh: tuple[int, ...] = ()
    offloads: bool = False
    param_dtype: str = ""


class DeepSpeedFacts(Record, frozen=True, kw_only=True):
    """One engine of ``deepspeed.initialize``: the stage of ZeRO, and whether parts of the state are kept in host memory
    or in files."""

    stage: int = 0
    processes: int = 1
    offloads: bool = False
    pipeline: bool = False


class ScriptFacts(Record, frozen=True, kw_only=True):
    """What hotlap saw the script do; levers decide by it whether they apply.

    ``files`` are the files of the sites, as they were when the script was run. ``samples_from`` is what the
    samples of steps were counted by. ``cudnn_tf32`` says that cuDNN may compute float32 convolutions and recurrent
    layers in TensorFloat-32, which torch allows unless the script forbids it. ``zeroes_gradients`` says that it called
    ``zero_grad(set_to_none=False)``. ``used_gradient_bytes`` are gradients of the last update that are held when a
    forward pass begins, and that the script clears before its next backward pass; ``keeps_gradients`` says that it
    does not clear them. ``garbage_share`` is the share of its time that Python's garbage collector took; None if that
    was not observed.
    ``inputs`` are those that the model of an inference target is called with in turn (0 for a script that trains), and
    ``packages`` those of :data:`ENGINE_PACKAGES` that its interpreter has (for a script that trains, torchao and
    liger_kernel). ``lengths`` are those of the sequences among its inputs (None: they have no attention mask). With
    ``calls_in_script`` a script of the user's makes the calls. ``generation`` is None unless they are calls of
    ``generate()``. ``shared_calls`` are the ways of putting several inputs into a call: how many at most, and how many
    calls all inputs then take (none where they differ in more than their first dimension).
    """

    device: str = "cpu"
    step_source: Literal["optimizer", "backward", "call"] = "optimizer"
    torch_version: str = ""
    processes: int = 1
    threads: int = 1
    loaders: tuple[LoaderFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    data_parallel: tuple[DataParallelFacts, ...] = ()
    sharded: tuple[ShardedFacts, ...] = ()
    deepspeed: tuple[DeepSpeedFacts, ...] = ()
    autocast_dtype: str = ""
    grad_scaler: bool = False
    matmul_precision: str = "highest"
    cudnn_tf32: bool = False
    cudnn_benchmark: bool = False
    deterministic: bool = False
    clips_gradients: bool = False
    zeroes_gradients: bool = False
    used_gradient_bytes: int = 0
    keeps_gradients: bool = False
    garbage_share: float | None = None
    backwards_per_step: float = 1.0
    random_in_forward: bool = False
    evaluation: EvaluationFacts | None = None
    checkpoints: CheckpointFacts | None = None
    sites: tuple[CallSite, ...] = ()
    files: tuple[FileDigest, ...] = ()
    samples_from: SampleSource = ""
    inputs: int = 0
    packages: tuple[str, ...] = ()
    lengths: LengthFacts | None = None
    calls_in_script: bool = False
    generation: GenerationFacts | None = None
    shared_calls: tuple[tuple[int, int], ...] = ()

    @property
    def allows_tf32(self) -> bool:
        """Whether some of its float32 products may be computed in TensorFloat-32: the library chooses, also by the
        layout of the operands."""
        if not self.device.startswith("cuda") or all(it.dtype != "float32" for it in self.models):
            return False
        by_cudnn = any(it.convolutions or it.recurrent for it in self.models if it.dtype == "float32")
        return self.matmul_precision != "highest" or (self.cudnn_tf32 and by_cudnn)

    @property
    def training_loaders(self) -> tuple[LoaderFacts, ...]:
        """The loaders on whose batches a backward followed; where none is known to, those of which that is not known.
        A loader that only evaluates bounds no step."""
        return tuple(it for it in self.loaders if it.trains) or tuple(it for it in self.loaders if it.trains is None)


class Invariants(Record, frozen=True, kw_only=True):
    """What a lever may not change from one step to the next (gate G0), one row a step."""

    learning_rates: tuple[tuple[float, ...], ...] = ()
    weight_decays: tuple[tuple[float, ...], ...] = ()
    other_hyperparameters: tuple[str, ...] = ()
    clip_values: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    batch_hashes: tuple[str, ...] = ()
    dropout: tuple[float, ...] = ()
    training: tuple[bool, ...] = ()
    trainable: tuple[int, ...] = ()
