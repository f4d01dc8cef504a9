"""Files opened, written, read back and deleted by ``open`` and ``pathlib``."""

from __future__ import annotations

from harmless.operation import Operation

ROWS = (
    Operation("open a new file", 'write("new.txt", "new")\nreturn [read("new.txt"), names()]'),
    Operation("open and overwrite", 'write("notes.txt", "new")\nreturn look("notes.txt")'),
    Operation(
        "open and append to a log",
        """
        for number in range(3):
            with open("log.txt", "a") as log:
                log.write(f"step {number}\\n")
        return read("log.txt")
        """,
    ),
    Operation("open exclusively", 'open("new.txt", "x").close()\nreturn look("new.txt")'),
    Operation("open exclusively what exists", 'return [caught(open, "notes.txt", "x"), read("notes.txt")]'),
    Operation(
        "open for update",
        """
        with open("notes.txt", "r+") as file:
            file.seek(2)
            file.write("XX")
        return read("notes.txt")
        """,
    ),
    Operation(
        "open for writing and reading",
        """
        with open("notes.txt", "w+") as file:
            file.write("written")
            file.seek(0)
            return [file.read(), os.path.getsize("notes.txt")]
        """,
    ),
    Operation(
        "open for appending and reading",
        """
        with open("log.txt", "a+") as file:
            file.write("end")
            file.seek(0)
            return file.read()
        """,
    ),
    Operation("truncate by mode", 'open("notes.txt", "w").close()\nreturn look("notes.txt")'),
    Operation(
        "truncate an open file",
        """
        with open("notes.txt", "r+") as file:
            file.truncate(3)
        return look("notes.txt")
        """,
    ),
    Operation("truncate by path", 'os.truncate("ckpt/best.pt", 7)\nreturn look("ckpt/best.pt")'),
    Operation("lengthen by path", 'os.truncate("notes.txt", 40)\nreturn look("notes.txt")'),
    Operation(
        "flush and read by another handle",
        """
        with open("log.txt", "a", buffering=1) as log:
            log.write("line\\n")
            return read("log.txt")
        """,
    ),
    Operation(
        "open with an encoding",
        """
        open("u.txt", "w", encoding="utf-16").write("é")
        return look("u.txt")["size"]
        """,
    ),
    Operation(
        "open with an opener",
        """
        def opener(path, flags):
            return os.open(path, flags, 0o640)
        with open("notes.txt", "w", opener=opener) as file:
            file.write("by opener")
        return look("notes.txt")
        """,
    ),
    Operation(
        "unlink while reading",
        """
        with open("notes.txt") as file:
            os.unlink("notes.txt")
            return [file.read(), os.path.exists("notes.txt"), names()]
        """,
    ),
    Operation(
        "unlink while writing",
        """
        with open("notes.txt", "r+") as file:
            os.unlink("notes.txt")
            file.write("gone")
            file.seek(0)
            return [file.read(), os.path.exists("notes.txt")]
        """,
    ),
    Operation(
        "replace while reading",
        """
        with open("notes.txt") as file:
            write("next.txt", "next")
            os.replace("next.txt", "notes.txt")
            return [file.read(), read("notes.txt")]
        """,
    ),
    Operation("pathlib write_text", 'Path("notes.txt").write_text("p")\nreturn Path("notes.txt").read_text()'),
    Operation("pathlib write_bytes", 'Path("b").write_bytes(bytes(9))\nreturn list(Path("b").read_bytes())'),
    Operation("pathlib touch and unlink", 'Path("t").touch()\nPath("notes.txt").unlink()\nreturn names()'),
    Operation("unlink what is missing", 'Path("no").unlink(missing_ok=True)\nreturn caught(os.unlink, "no")'),
    Operation("delete and make again", 'os.remove("notes.txt")\nwrite("notes.txt", "again")\nreturn look("notes.txt")'),
    Operation("bytes paths", 'open(b"notes.txt", "wb").write(b"x")\nreturn sorted(map(os.fsdecode, os.listdir(b".")))'),
    Operation(
        "a path object of its own",
        """
        class Name:
            def __fspath__(self):
                return "named.txt"
        with open(Name(), "w") as file:
            file.write("x")
        return look("named.txt")
        """,
    ),
    Operation("print into a file", 'with open("p", "w") as file:\n    print("a", 1, file=file)\nreturn read("p")'),
    Operation(
        "codecs.open",
        """
        import codecs
        with codecs.open("c", "w", "latin-1") as f:
            f.write("é")
        return look("c")["size"]
        """,
    ),
    Operation("os.popen reads", 'return os.popen("cat ckpt/last.pt").read()[:12]'),
)
