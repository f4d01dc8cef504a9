"""The functions of libraries that open files without Python's help, and where each finds its file in the view.

One line of :data:`TABLE` each. What a library opens otherwise, such as a path inside of an SQL statement, is not
redirected: the kernel denies it in a fence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from errno import EEXIST
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote

from hotlap.runtime.overlay import Overlay

Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]
# Where on the disk the file is that a call names: (overlay, its path, the call's arguments and keywords). An OSError
# that says that there is none makes the native code get a path at which there is none either.
Locate: TypeAlias = Callable[[Overlay, str, Arguments, Keywords], str]

_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_UPDATE = os.O_RDWR | os.O_CREAT
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class NativeCall:
    """A function of ``module`` that takes a path (or a list of them) as its argument number ``position``, named
    ``keyword``.

    ``kind`` is ``function``, ``method`` (its first argument is the object), or a class to be derived from that takes
    its arguments in ``__init__`` (``class``) or ``__new__`` (``new``). ``makes_folders``: other processes must look
    again once it has returned.
    """

    module: str
    name: str
    position: int
    keyword: str
    locate: Locate
    kind: str = "function"
    makes_folders: bool = False


def given(arguments: Arguments, keywords: Keywords, position: int, keyword: str, default: Any = None) -> Any:
    """An argument of a call by its position or its keyword."""
    return arguments[position] if len(arguments) > position else keywords.get(keyword, default)


def _reads(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    if overlay.is_same_as_below(path):
        return path
    try:
        return overlay.locate(path)
    except FileNotFoundError:
        if _WILDCARDS.isdisjoint(path):
            raise
        return path


def _rewrites(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    return overlay.for_writing(path, _REWRITE)


def _updates(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    return overlay.for_writing(path, _UPDATE)


def _updates_if_shared(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    return (_updates if given(arguments, keywords, 1, "shared", False) else _reads)(overlay, path, arguments, keywords)


def _by_mode(position: int) -> Locate:
    """By an argument that is a mode such as that of ``open``: r, w, a, r+, w-, x."""

    def locate(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
        mode = str(given(arguments, keywords, position, "mode", "r")).replace("b", "")
        if mode == "r":
            return _reads(overlay, path, arguments, keywords)
        flags = {"w": _REWRITE, "r+": os.O_RDWR, "x": _UPDATE | os.O_EXCL}.get(mode, _UPDATE)
        return overlay.for_writing(path, flags)

    return locate


def _into_folder(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    """New files in a folder, which may have to be made."""
    return overlay.for_writing_into(path)


def _by_flags_of_storage(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    """``cv2.FileStorage``: bit 0 is to write, bit 1 to append, bit 2 to take the path for the content itself."""
    flags = given(arguments, keywords, 2, "flags", 0)
    if flags & 4:
        return path
    how = _updates if flags & 2 else _rewrites if flags & 1 else _reads
    return how(overlay, path, arguments, keywords)


def _sqlite_database(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    """A path, or an address where the call says so (https://sqlite.org/uri.html)."""
    uri = given(arguments, keywords, 7, "uri", False)
    if path in ("", ":memory:"):
        return path
    if not (uri and path.startswith("file:")):
        return _updates(overlay, path, arguments, keywords)
    address, _, query = path.removeprefix("file:").partition("#")[0].partition("?")
    name = unquote("/" + address[2:].partition("/")[2] if address.startswith("//") else address)
    mode = parse_qs(query).get("mode", ["rwc"])[-1]
    if mode == "memory" or name in ("", ":memory:"):
        return path
    if mode == "ro":
        place = _reads(overlay, name, arguments, keywords)
    else:
        place = overlay.for_writing(name, os.O_RDWR if mode == "rw" else _UPDATE)
    return f"file:{quote(place)}{'?' if query else ''}{query}"


def _duckdb_database(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    if path.startswith(":") or not path:
        return path
    read_only = given(arguments, keywords, 1, "read_only", False)
    return (_reads if read_only else _updates)(overlay, path, arguments, keywords)


def _lmdb_environment(overlay: Overlay, path: str, arguments: Arguments, keywords: Keywords) -> str:
    """A folder with two files, or one file with its lock next to it."""
    in_folder = given(arguments, keywords, 2, "subdir", True)
    if given(arguments, keywords, 3, "readonly", False):
        keywords.setdefault("lock", False)  # has one writer, and its lock would be written to
        return _reads(overlay, path, arguments, keywords)
    if not in_folder:
        overlay.for_writing(f"{path}-lock", _UPDATE)
        return overlay.for_writing(path, _UPDATE)
    if given(arguments, keywords, 9, "create", True):
        try:
            overlay.make_directory(path, 0o755)
        except OSError as failure:
            if failure.errno != EEXIST:
                raise
    overlay.for_writing(f"{path}/lock.mdb", _UPDATE)
    return overlay.for_writing(f"{path}/data.mdb", _UPDATE).rpartition("/")[0]


def _methods(module: str, owner: str, names: str, keyword: str, locate: Locate) -> tuple[NativeCall, ...]:
    """Methods that take the path first."""
    return tuple(NativeCall(module, f"{owner}.{it}", 1, keyword, locate, "method") for it in names.split())


def _functions(module: str, names: str, keyword: str, locate: Locate) -> tuple[NativeCall, ...]:
    """Functions that take the path first."""
    return tuple(NativeCall(module, it, 0, keyword, locate) for it in names.split())


_TORCH = (
    NativeCall("torch", "_C.PyTorchFileWriter", 0, "file_name", _rewrites, "class"),
    NativeCall("torch", "_C.PyTorchFileReader", 0, "file_name", _reads, "class"),
    NativeCall("torch", "_C.ScriptModule.save", 1, "filename", _rewrites, "method"),
    NativeCall("torch", "_C.ScriptFunction.save", 1, "filename", _rewrites, "method"),
    NativeCall("torch", "_C.import_ir_module", 1, "filename", _reads),
    NativeCall("torch", "UntypedStorage.from_file", 0, "filename", _updates_if_shared),
    NativeCall("torch", "from_file", 0, "filename", _updates_if_shared),
    NativeCall("torch", "_C._autograd._ProfilerResult.save", 1, "path", _rewrites, "method"),
    NativeCall("torch", "profiler.profiler._add_execution_trace_observer", 0, "output_file_path", _rewrites),
    NativeCall("torch", "_C._distributed_c10d.FileStore.__init__", 1, "file_name", _updates, "method"),
)
_TOKENIZERS = (
    NativeCall("tokenizers", "Tokenizer.save", 1, "path", _rewrites, "method"),
    NativeCall("tokenizers", "Tokenizer.from_file", 0, "path", _reads),
    NativeCall("tokenizers", "Tokenizer.train", 1, "files", _reads, "method"),
    *(
        NativeCall("tokenizers", f"models.{it}.save", 1, "folder", _into_folder, "method")
        for it in ("BPE", "Unigram", "WordLevel", "WordPiece")
    ),
    *_functions("tokenizers", "models.BPE.from_file models.BPE.read_file", "vocab", _reads),
    NativeCall("tokenizers", "models.BPE.from_file", 1, "merges", _reads),
    NativeCall("tokenizers", "models.BPE.read_file", 1, "merges", _reads),
    *(
        NativeCall("tokenizers", f"models.{it}.{name}", 0, "vocab", _reads)
        for it in ("WordLevel", "WordPiece")
        for name in ("from_file", "read_file")
    ),
)
_SAFETENSORS = tuple(
    it
    for module in ("safetensors", "safetensors.numpy", "safetensors.torch")
    for it in (
        NativeCall(module, "serialize_file", 1, "filename", _rewrites),
        NativeCall(module, "safe_open", 0, "filename", _reads),
    )
)
_PYARROW = (
    NativeCall("pyarrow", "OSFile", 0, "path", _by_mode(1), "new"),
    NativeCall("pyarrow", "memory_map", 0, "path", _by_mode(1)),
    *_functions("pyarrow", "output_stream", "source", _rewrites),
    *_functions("pyarrow", "create_memory_map", "path", _rewrites),
    *_functions("pyarrow", "input_stream", "source", _reads),
    *_functions("pyarrow", "ipc.new_file ipc.new_stream", "sink", _rewrites),
    *_functions("pyarrow", "ipc.open_file ipc.open_stream", "source", _reads),
    NativeCall("pyarrow.parquet.core", "write_table", 1, "where", _rewrites),
    NativeCall("pyarrow.parquet.core", "write_metadata", 1, "where", _rewrites),
    NativeCall("pyarrow.parquet.core", "write_to_dataset", 1, "root_path", _into_folder, makes_folders=True),
    NativeCall("pyarrow.parquet.core", "ParquetWriter.__init__", 1, "where", _rewrites, "method"),
    NativeCall("pyarrow.parquet.core", "ParquetFile.__init__", 1, "source", _reads, "method"),
    NativeCall("pyarrow.parquet.core", "ParquetDataset.__init__", 1, "path_or_paths", _reads, "method"),
    *_functions("pyarrow.parquet.core", "read_table", "source", _reads),
    *_functions("pyarrow.parquet.core", "read_metadata read_schema", "where", _reads),
    NativeCall("pyarrow.feather", "write_feather", 1, "dest", _rewrites),
    *_functions("pyarrow.feather", "read_feather read_table", "source", _reads),
    NativeCall("pyarrow.csv", "write_csv", 1, "output_file", _rewrites),
    NativeCall("pyarrow.csv", "CSVWriter", 0, "sink", _rewrites, "new"),
    *_functions("pyarrow.csv", "read_csv open_csv", "input_file", _reads),
    *_functions("pyarrow.json", "read_json open_json", "input_file", _reads),
    NativeCall("pyarrow.orc", "ORCWriter.__init__", 1, "where", _rewrites, "method"),
    NativeCall("pyarrow.orc", "ORCFile.__init__", 1, "source", _reads, "method"),
    NativeCall("pyarrow.dataset", "write_dataset", 1, "base_dir", _into_folder, makes_folders=True),
    *_functions("pyarrow.dataset", "dataset", "source", _reads),
)
_POLARS = (
    *_methods(
        "polars",
        "DataFrame",
        "write_parquet write_csv write_ipc write_ipc_stream write_json write_ndjson write_avro",
        "file",
        _rewrites,
    ),
    *_methods("polars", "LazyFrame", "sink_parquet sink_csv sink_ipc sink_ndjson", "path", _rewrites),
    *_functions(
        "polars",
        "read_parquet read_parquet_schema read_parquet_metadata scan_parquet read_csv scan_csv read_ipc read_ipc_schema"
        " read_ipc_stream scan_ipc read_json read_ndjson scan_ndjson read_avro",
        "source",
        _reads,
    ),
)
_IMAGES = (
    NativeCall("cv2", "imwrite", 0, "filename", _rewrites),
    NativeCall("cv2", "imwritemulti", 0, "filename", _rewrites),
    *_functions("cv2", "imread imreadmulti imcount", "filename", _reads),
    *_methods("cv2", "VideoWriter", "__init__ open", "filename", _rewrites),
    *_methods("cv2", "VideoCapture", "__init__ open", "filename", _reads),
    NativeCall("cv2", "FileStorage.__init__", 1, "source", _by_flags_of_storage, "method"),
    NativeCall("cv2", "FileStorage.open", 1, "filename", _by_flags_of_storage, "method"),
)
_DATABASES = (
    NativeCall("sqlite3", "connect", 0, "database", _sqlite_database),
    NativeCall("sqlite3", "dbapi2.connect", 0, "database", _sqlite_database),
    NativeCall("sqlite3", "Connection", 0, "database", _sqlite_database, "class"),
    NativeCall("h5py", "File.__init__", 1, "name", _by_mode(2), "method"),
    NativeCall("tables.file", "open_file", 0, "filename", _by_mode(1)),
    NativeCall("lmdb", "open", 0, "path", _lmdb_environment),
    NativeCall("duckdb", "connect", 0, "database", _duckdb_database),
)
TABLE = (*_TORCH, *_TOKENIZERS, *_SAFETENSORS, *_PYARROW, *_POLARS, *_IMAGES, *_DATABASES)
