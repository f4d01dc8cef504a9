"""Further libraries that write files, most of them with native code."""

from __future__ import annotations

from harmless.operation import library

ROWS = (
    library(
        "lmdb",
        "lmdb",
        """
        import lmdb
        with lmdb.open("l.lmdb", map_size=1 << 20) as env, env.begin(write=True) as t:
            t.put(b"k", b"v")
        with lmdb.open("l.lmdb", map_size=1 << 20) as env, env.begin() as t:
            return bytes(t.get(b"k")).decode()
        """,
    ),
    library(
        "lmdb",
        "lmdb after makedirs",
        """
        import lmdb
        os.makedirs("db")
        with lmdb.open("db", map_size=1 << 20) as env, env.begin(write=True) as t:
            t.put(b"k", b"v")
        return names("db")
        """,
    ),
    library(
        "lmdb",
        "lmdb in one file",
        """
        import lmdb
        with lmdb.open("one.mdb", subdir=False, map_size=1 << 20) as env, env.begin(write=True) as t:
            t.put(b"k", b"v")
        return os.path.exists("one.mdb")
        """,
    ),
    library(
        "tables",
        "PyTables",
        """
        import tables
        with tables.open_file("t.h5", "w") as f:
            f.create_array("/", "a", [1, 2])
        with tables.open_file("t.h5") as f:
            return list(f.root.a.read())
        """,
    ),
    library(
        "tables",
        "PyTables over a file",
        """
        import tables
        with tables.open_file("notes.txt", "w") as f:
            f.create_array("/", "a", [1, 2])
        return os.path.getsize("notes.txt") > 100
        """,
    ),
    library(
        "h5py",
        "h5py",
        """
        import h5py
        with h5py.File("h.h5", "w") as f:
            f["a"] = [1, 2]
        with h5py.File("h.h5") as f:
            return f["a"][:].tolist()
        """,
    ),
    library(
        "h5py",
        "h5py over a file",
        """
        import h5py
        with h5py.File("notes.txt", "w") as f:
            f["a"] = [1, 2]
        with h5py.File("notes.txt", "a") as f:
            f["b"] = [3]
        with h5py.File("notes.txt") as f:
            return sorted(f)
        """,
    ),
    library(
        "h5py",
        "h5py external links",
        """
        import h5py
        with h5py.File("a.h5", "w") as f:
            f["link"] = h5py.ExternalLink("b.h5", "/x")
        with h5py.File("b.h5", "w") as f:
            f["x"] = [5]
        with h5py.File("a.h5") as f:
            return f["link"][:].tolist()
        """,
    ),
    library(
        "cv2",
        "cv2.imwrite",
        """
        import cv2, numpy
        assert cv2.imwrite("i.png", numpy.zeros((4, 4, 3), "uint8")), "imwrite failed"
        return list(cv2.imread("i.png").shape)
        """,
    ),
    library(
        "cv2",
        "cv2.imwritemulti",
        """
        import cv2, numpy
        assert cv2.imwritemulti("i.tiff", [numpy.zeros((4, 4), "uint8")] * 2), "imwritemulti failed"
        return os.path.getsize("i.tiff") > 0
        """,
    ),
    library(
        "cv2",
        "cv2.VideoWriter",
        """
        import cv2, numpy
        out = cv2.VideoWriter("v.avi", cv2.VideoWriter_fourcc(*"MJPG"), 5, (16, 16))
        assert out.isOpened(), "the video could not be opened"
        out.write(numpy.zeros((16, 16, 3), "uint8"))
        out.release()
        return os.path.getsize("v.avi") > 0
        """,
    ),
    library(
        "cv2",
        "cv2.FileStorage",
        """
        import cv2
        out = cv2.FileStorage("s.yml", cv2.FILE_STORAGE_WRITE)
        assert out.isOpened(), "the storage could not be opened"
        out.write("a", 1)
        out.release()
        return "a: 1" in read("s.yml")
        """,
    ),
    library(
        "PIL",
        "pillow",
        """
        from PIL import Image
        Image.new("RGB", (4, 4)).save("p.png")
        return list(Image.open("p.png").size)
        """,
    ),
    library(
        "PIL",
        "pillow over a file",
        """
        from PIL import Image
        Image.new("L", (2, 2)).save("notes.txt", format="png")
        return Image.open("notes.txt").format
        """,
    ),
    library(
        "numpy",
        "numpy save over a file",
        """
        import numpy
        with open("notes.txt", "wb") as f:
            numpy.save(f, numpy.ones(3))
        return numpy.load("notes.txt").tolist()
        """,
    ),
    library(
        "scipy",
        "scipy savemat",
        """
        import scipy.io
        scipy.io.savemat("m.mat", {"a": [1]})
        return scipy.io.loadmat("m.mat")["a"].tolist()
        """,
    ),
    library(
        "scipy",
        "scipy wav",
        """
        import numpy, scipy.io.wavfile as w
        w.write("w.wav", 8000, numpy.zeros(8, "int16"))
        return w.read("w.wav")[0]
        """,
    ),
    library(
        "safetensors",
        "safetensors with numpy",
        """
        import numpy
        from safetensors.numpy import load_file, save_file
        save_file({"a": numpy.ones(2)}, "m.safetensors")
        return load_file("m.safetensors")["a"].tolist()
        """,
    ),
    library(
        "safetensors",
        "safetensors over a checkpoint",
        """
        import numpy
        from safetensors.numpy import load_file, save_file
        save_file({"a": numpy.ones(2)}, "ckpt/best.pt")
        return load_file("ckpt/best.pt")["a"].tolist()
        """,
    ),
    library(
        "tokenizers",
        "tokenizers save",
        """
        from tokenizers import Tokenizer, models
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save("tok.json")
        return Tokenizer.from_file("tok.json").get_vocab_size()
        """,
    ),
    library(
        "tokenizers",
        "tokenizers save after makedirs",
        """
        from tokenizers import Tokenizer, models
        os.makedirs("out")
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save("out/tok.json")
        return names("out")
        """,
    ),
    library(
        "tokenizers",
        "tokenizers model save",
        """
        from tokenizers import models
        models.WordLevel({"a": 0}, unk_token="a").save(".")
        return read("vocab.json")
        """,
    ),
    library(
        "tokenizers",
        "tokenizers train from files",
        """
        from tokenizers import Tokenizer, models, trainers
        t = Tokenizer(models.WordLevel(unk_token="?"))
        t.train(["notes.txt"], trainers.WordLevelTrainer(special_tokens=["?"], show_progress=False))
        return t.get_vocab_size()
        """,
    ),
    library(
        "yaml",
        "yaml",
        """
        import yaml
        with open("c.yml", "w") as f:
            yaml.safe_dump({"a": 1}, f)
        return yaml.safe_load(open("c.yml"))
        """,
    ),
    library(
        "fsspec",
        "fsspec",
        """
        import fsspec
        with fsspec.open("file.txt", "w") as f:
            f.write("x")
        fsspec.filesystem("file").rm("ckpt", recursive=True)
        return names()
        """,
    ),
)
