"""What torch, its profiler, tensorboard and transformers save."""

from __future__ import annotations

import textwrap

from harmless.operation import Operation


def torch_row(name: str, code: str, fence: str = "same", none: str = "same", needs: tuple[str, ...] = ()) -> Operation:
    return Operation(name, f"import torch\n{textwrap.dedent(code)}", ("torch", *needs), fence, none, group="torch")  # type: ignore[arg-type]


def transformers_row(name: str, code: str, fence: str = "same", none: str = "same") -> Operation:
    return Operation(name, code, ("transformers",), fence, none, group="torch")  # type: ignore[arg-type]


_NET = "net = torch.nn.Linear(2, 2)\n"
_PROFILE = """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]{more}) as profile:
    torch.ones(4).sum()
"""
_TOKENIZER = """
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
"""
_MODEL = """
from transformers import BertConfig, BertModel
config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=5)
model = BertModel(config)
"""

ROWS = (
    torch_row(
        "torch.save over a checkpoint",
        _NET + 'torch.save(net.state_dict(), "ckpt/best.pt")\nreturn sorted(torch.load("ckpt/best.pt"))',
    ),
    torch_row(
        "rmtree, makedirs, torch.save",
        _NET + 'shutil.rmtree("ckpt")\n'
        'os.makedirs("ckpt")\n'
        'torch.save(net.state_dict(), "ckpt/best.pt")\n'
        'return [names("ckpt"), sorted(torch.load("ckpt/best.pt"))]',
    ),
    torch_row(
        "torch.save, the old format",
        _NET + 'torch.save(net.state_dict(), "old.pt", _use_new_zipfile_serialization=False)\n'
        'return sorted(torch.load("old.pt"))',
    ),
    torch_row(
        "torch.save into an open file",
        _NET + 'with open("o.pt", "wb") as f:\n    torch.save(net.state_dict(), f)\nreturn sorted(torch.load("o.pt"))',
    ),
    torch_row(
        "torch.save and os.replace",
        _NET + 'torch.save(net.state_dict(), "t.pt")\n'
        'os.replace("t.pt", "ckpt/last.pt")\n'
        'return sorted(torch.load("ckpt/last.pt"))',
    ),
    torch_row(
        "torch.load with mmap",
        _NET + 'torch.save(net.state_dict(), "m.pt")\nreturn sorted(torch.load("m.pt", mmap=True))',
    ),
    torch_row(
        "torch.save elsewhere",
        _NET + 'torch.save(net.state_dict(), DATA / "models/base.bin")\n'
        'return sorted(torch.load(DATA / "models/base.bin"))',
    ),
    torch_row("torch.save into a missing folder", 'return caught(torch.save, {}, "no/folder/x.pt") != "none"'),
    torch_row(
        "torch.save, then cp",
        _NET + 'torch.save(net.state_dict(), "n.pt")\n'
        'run("cp", "n.pt", "ckpt/best.pt")\n'
        'return sorted(torch.load("ckpt/best.pt"))',
        "denied",
        "differs",
    ),
    torch_row(
        "torch.from_file, shared",
        """
        t = torch.from_file("f.bin", shared=True, size=4)
        t[:] = 2
        return torch.from_file("f.bin", size=4).tolist()
        """,
    ),
    torch_row(
        "UntypedStorage.from_file",
        """
        s = torch.UntypedStorage.from_file("ckpt/best.pt", True, 4)
        s[0] = 65
        return Path("ckpt/best.pt").read_bytes()[:1].decode()
        """,
    ),
    torch_row(
        "torch.jit.save",
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "j.pt")
            return type(torch.jit.load("j.pt")).__name__
        """,
    ),
    torch_row(
        "ScriptModule.save",
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(torch.nn.Linear(1, 1)).save("j.pt")
        return os.path.getsize("j.pt") > 0
        """,
    ),
    torch_row(
        "ScriptFunction.save",
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.trace(lambda x: x * 2, torch.ones(1)).save("f.pt")
        return os.path.getsize("f.pt") > 0
        """,
    ),
    torch_row(
        "torch.export.save",
        """
        program = torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),))
        torch.export.save(program, "e.pt2")
        return type(torch.export.load("e.pt2")).__name__
        """,
    ),
    torch_row(
        "export_chrome_trace",
        _PROFILE.format(more="") + 'profile.export_chrome_trace("trace.json")\n'
        'return "traceEvents" in json.loads(read("trace.json"))',
    ),
    torch_row(
        "export_chrome_trace, compressed",
        _PROFILE.format(more="") + 'profile.export_chrome_trace("trace.json.gz")\n'
        'return os.path.getsize("trace.json.gz") > 0',
    ),
    torch_row(
        "export_stacks",
        _PROFILE.format(more=", with_stack=True") + 'profile.export_stacks("stacks.txt")\n'
        'return os.path.exists("stacks.txt")',
    ),
    torch_row(
        "tensorboard_trace_handler",
        _PROFILE.format(more=', on_trace_ready=torch.profiler.tensorboard_trace_handler("tb")')
        + 'return [len(names("tb")), names("tb")[0].endswith(".pt.trace.json")]',
    ),
    torch_row(
        "SummaryWriter",
        """
        from torch.utils.tensorboard import SummaryWriter
        with SummaryWriter("runs") as writer:
            writer.add_scalar("loss", 1.0, 0)
        return [len(names("runs")), os.path.getsize("runs/" + names("runs")[0]) > 0]
        """,
        needs=("tensorboard",),
    ),
    torch_row(
        "safetensors with torch",
        """
        from safetensors.torch import load_file, save_file
        save_file({"a": torch.ones(2)}, "ckpt/best.pt")
        return load_file("ckpt/best.pt")["a"].tolist()
        """,
        needs=("safetensors",),
    ),
    torch_row(
        "safetensors save_model",
        _NET + "from safetensors.torch import load_model, save_model\n"
        'save_model(net, "m.safetensors")\n'
        'load_model(net, "m.safetensors")\n'
        'return os.path.getsize("m.safetensors") > 0',
        needs=("safetensors",),
    ),
    torch_row(
        "distributed checkpoint",
        _NET + "import torch.distributed.checkpoint as dcp\n"
        "import warnings\n"
        "with warnings.catch_warnings():\n"
        '    warnings.simplefilter("ignore")\n'
        '    dcp.save(net.state_dict(), checkpoint_id="dcp", no_dist=True)\n'
        'return names("dcp")',
    ),
    torch_row("a tensor's numpy to a file", 'torch.ones(3).numpy().tofile("n.bin")\nreturn os.path.getsize("n.bin")'),
    torch_row(
        "a data loader's workers write",
        """
        def save(index):
            write(f"w{index}", "x")
            return index
        class Saving(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return save(index)
        list(torch.utils.data.DataLoader(Saving(), num_workers=2))
        return names()
        """,
    ),
    torch_row("share_memory_", "t = torch.zeros(4).share_memory_()\nin_fork(lambda: t.fill_(3))\nreturn t.tolist()"),
    torch_row(
        "FileStore",
        """
        import torch.distributed as dist
        store = dist.FileStore("store", 1)
        store.set("k", "v")
        return store.get("k").decode()
        """,
    ),
    torch_row(
        "init_process_group by a file",
        """
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/rendezvous", rank=0, world_size=1)
        dist.destroy_process_group()
        return "joined"
        """,
    ),
    transformers_row(
        "tokenizer.save_pretrained",
        _TOKENIZER + 'os.makedirs("out/ck")\nfast.save_pretrained("out/ck")\nreturn names("out/ck")',
    ),
    transformers_row(
        "tokenizer.save_pretrained over a folder",
        _TOKENIZER + 'fast.save_pretrained("ckpt")\nreturn names("ckpt")',
    ),
    transformers_row("model.save_pretrained", _MODEL + 'model.save_pretrained("out")\nreturn names("out")'),
    transformers_row(
        "model.save_pretrained over a folder",
        _MODEL + 'model.save_pretrained("ckpt")\n'
        'return [names("ckpt"), type(BertModel.from_pretrained("ckpt")).__name__]',
    ),
    transformers_row("config.save_pretrained", _MODEL + 'config.save_pretrained("conf")\nreturn names("conf")'),
)
