"""The results of torch's functions and methods, as far as lint rules need them."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOSS_FUNCTIONS = frozenset({"cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"})
"""Losses of ``torch.nn.functional``, besides those whose name ends in ``_loss``."""

# Functions that make a tensor from nothing or from Python values; on the host unless ``device=`` is given.
CREATORS = _words(
    "arange as_tensor asarray empty empty_strided eye from_numpy frombuffer full hann_window linspace logspace "
    "normal ones rand randint randn randperm range scalar_tensor tensor tril_indices triu_indices zeros"
)
# Functions that make a tensor from tensors, on the same device.
OPERATIONS = _words(
    "abs add addmm all allclose any argmax argmin argsort baddbmm bmm cat ceil chunk clamp clip clone concat "
    "concatenate conj cos cosine_similarity cross cumprod cumsum diag diff div dot einsum empty_like eq "
    "erf exp flatten "
    "flip floor full_like gather ge gt heaviside histc hstack index_select inner isfinite isinf isnan kron le lerp "
    "log log10 log1p log2 logical_and logical_not logical_or logsumexp lt masked_select matmul mean "
    "minimum maximum mm "
    "mul multinomial mv nan_to_num ne neg norm numel_like ones_like outer pow prod "
    "rand_like randint_like randn_like "
    "reciprocal relu repeat_interleave reshape roll round rsqrt scatter sigmoid sign sin softmax log_softmax sqrt "
    "square squeeze stack std sub sum swapaxes t take tan tanh tensordot tile trace transpose tril "
    "triu trunc unflatten "
    "unsqueeze var vstack where zeros_like bernoulli clip_grad_norm_ get_total_norm"
)
PAIRS = _words("max min median mode sort topk kthvalue cummax cummin std_mean var_mean aminmax")
"""With a dimension these return several tensors, otherwise one (``max``, ``min``, ``median``)."""
SEVERAL = _words("chunk split unbind tensor_split meshgrid broadcast_tensors nonzero_as_tuple")

HOST_VALUES = _words(
    "item tolist numpy size dim ndimension numel nelement stride element_size data_ptr get_device type storage "
    "untyped_storage backward is_contiguous is_floating_point is_complex is_pinned is_set_to register_hook "
    "requires_grad_ retain_grad storage_offset equal allclose"
)
"""Methods of a tensor that do not return a tensor (``requires_grad_`` does, but no rule needs it)."""
TENSOR_ATTRIBUTES = frozenset({"grad", "data", "T", "mT", "H", "mH", "real", "imag"})

# Methods that only tensors (and arrays) have: their result on a model's output is a tensor.
TENSOR_METHODS = _words(
    "argmax argmin softmax log_softmax sigmoid detach float half bfloat16 double long int bool "
    "view reshape squeeze "
    "unsqueeze permute transpose contiguous flatten mean sum norm abs exp log sqrt pow clamp clone eq ne gt "
    "ge lt le "
    "logsumexp masked_select gather index_select view_as type_as expand expand_as t cuda cpu to add sub mul div "
    "round item_ relu tanh std var prod any all cumsum"
)
KEEPS_KIND = _words("to cuda cpu xpu train eval float double half bfloat16 requires_grad_ share_memory apply compile")
"""Methods that return the module they were called on."""
TYPES = _words("float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 uint8 short long bool")
MOVES_TO_DEVICE = frozenset({"cuda", "xpu", "npu", "hpu"})

NOT_MODULES = frozenset({"Parameter", "ParameterList", "ParameterDict", "Buffer", "UninitializedParameter"})
MODULE_WRAPPERS = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
    }
)
LOADERS = frozenset({"torch.utils.data.DataLoader"})
SCALERS = frozenset(
    {"torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.cpu.amp.GradScaler",
     "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"}
)  # fmt: skip
DATASETS = frozenset(
    f"torch.utils.data.{it}" for it in ("Dataset", "IterableDataset", "TensorDataset", "Subset", "ConcatDataset")
)
LIGHTNING_MODULES = frozenset(
    f"{root}.LightningModule"
    for root in (
        "lightning", "lightning.pytorch", "pytorch_lightning", "lightning.pytorch.core.module",
        "lightning.pytorch.core", "pytorch_lightning.core", "pytorch_lightning.core.module",
    )
)  # fmt: skip
TRAINERS = frozenset({"transformers.Trainer", "transformers.trainer.Trainer", "transformers.Seq2SeqTrainer"})
MODULES = frozenset({"torch.nn.Module", *LIGHTNING_MODULES})
ACCELERATORS = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
FABRICS = frozenset({"lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"})

MEMORY_COUNTERS = frozenset(
    f"torch.{module}.{it}"
    for module in ("cuda", "cuda.memory", "xpu", "accelerator")
    for it in ("max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats", "memory_stats")
)
GRADIENTS_OFF = frozenset({"torch.no_grad", "torch.inference_mode"})
