"""Symbolic and hard links, renames and exchanges."""

from __future__ import annotations

from harmless.operation import Operation, for_others, native

_RENAMEAT2 = 'def exchange(a, b, flags):\n    libc("renameat2", -100, a, -100, b, flags)\n'

LINKS = (
    Operation(
        "symlink",
        """
        os.symlink("ckpt/best.pt", "latest")
        return [look("latest"), read("latest") == read("ckpt/best.pt")]
        """,
    ),
    Operation(
        "symlink to a folder",
        """
        Path("current").symlink_to("ckpt", target_is_directory=True)
        return names("current")
        """,
    ),
    Operation("symlink over what exists", 'return caught(os.symlink, "a", "notes.txt")'),
    Operation(
        "move a latest link",
        """
        os.symlink("ckpt/last.pt", "tmp_link")
        os.replace("tmp_link", "to_notes")
        return look("to_notes")
        """,
    ),
    Operation("delete a link", 'os.unlink("to_notes")\nreturn [look("to_notes"), read("notes.txt")]'),
    Operation("delete a link to a folder", 'os.unlink("to_data")\nreturn [look("to_data"), names("data")]'),
    Operation("write through a link", 'write("to_notes", "linked")\nreturn [read("notes.txt"), look("to_notes")]'),
    Operation("append through a link", 'open("to_notes", "a").write("more")\nreturn read("notes.txt")'),
    Operation(
        "write through a link to a folder",
        """
        write("to_data/new.csv", "1")
        return [names("data"), names("to_data")]
        """,
    ),
    Operation("write through a dangling link", 'write("dangling", "found")\nreturn [names(), read("missing.txt")]'),
    Operation(
        "exclusive through a dangling link", 'return [caught(open, "dangling", "x"), os.path.exists("missing.txt")]'
    ),
    Operation(
        "a loop of links",
        'return [caught(open, "loop"), caught(open, "loop", "w"), caught(os.stat, "loop"), look("loop")]',
    ),
    Operation(
        "make a loop of links",
        """
        os.symlink("b_link", "a_link")
        os.symlink("a_link", "b_link")
        return [caught(open, "a_link"), os.path.lexists("a_link")]
        """,
    ),
    Operation(
        "a link to the parent",
        """
        os.symlink("..", "ckpt/up")
        write("ckpt/up/ckpt/x", "x")
        return names("ckpt")
        """,
    ),
    Operation(
        "an absolute link",
        """
        os.symlink(DATA / "set.csv", "abs")
        write("abs", "changed")
        return read(DATA / "set.csv")
        """,
    ),
    Operation(
        "realpath and resolve",
        """
        os.symlink("ckpt", "c")
        return [os.path.basename(os.path.realpath("c/best.pt")), Path("to_notes").resolve().name]
        """,
    ),
    Operation(
        "readlink",
        'return [os.readlink("to_notes"), os.fsdecode(os.readlink(b"to_data")), caught(os.readlink, "notes.txt")]',
    ),
    Operation(
        "hard link of an existing file",
        """
        os.link("notes.txt", "twin")
        return [look("twin"), os.path.samefile("twin", "notes.txt")]
        """,
        namespaces=for_others("differs"),
    ),
    Operation(
        "hard link of a new file",
        """
        write("new", "x")
        os.link("new", "twin")
        open("twin", "a").write("y")
        return [read("new"), look("new")]
        """,
    ),
    Operation(
        "write through a hard link",
        """
        os.link("notes.txt", "twin")
        write("twin", "both")
        return [read("notes.txt"), read("twin")]
        """,
    ),
    Operation("a hard-linked pair, read", 'return [look("pair_a"), os.path.samefile("pair_a", "pair_b")]'),
    Operation("a hard-linked pair, one deleted", 'os.unlink("pair_a")\nreturn [names(), read("pair_b")]'),
    Operation(
        "a hard-linked pair, one replaced",
        """
        write("t", "t")
        os.replace("t", "pair_a")
        return [read("pair_a"), read("pair_b")]
        """,
    ),
    Operation(
        "a hard-linked pair, one written",
        """
        write("pair_a", "new")
        return [read("pair_a"), read("pair_b")]
        """,
        none="differs",
        namespaces=for_others("differs"),
        fence="differs",
    ),
    Operation(
        "a hard link elsewhere",
        """
        os.link(DATA / "set.csv", "set.csv")
        open("set.csv", "a").write("more")
        return read(DATA / "set.csv")
        """,
    ),
    Operation(
        "a hard link to elsewhere",
        """
        os.link("notes.txt", DATA / "notes.txt")
        return [names(DATA), read(DATA / "notes.txt")]
        """,
    ),
    Operation("a hard link into the home", 'Path(HOME / "n").hardlink_to("notes.txt")\nreturn read(HOME / "n")'),
    Operation("a hard link over what exists", 'return caught(os.link, "notes.txt", "log.txt")'),
    Operation("a hard link of a folder", 'return caught(os.link, "ckpt", "c2")'),
    Operation("a hard link of a link", 'os.link("to_notes", "twin", follow_symlinks=False)\nreturn look("twin")'),
)

RENAMES = (
    Operation("rename a file", 'os.rename("notes.txt", "moved.txt")\nreturn [names(), read("moved.txt")]'),
    Operation("rename over a file", 'os.rename("ckpt/last.pt", "ckpt/best.pt")\nreturn tree("ckpt")'),
    Operation(
        "replace a checkpoint",
        """
        write("ckpt/tmp", "new")
        os.replace("ckpt/tmp", "ckpt/best.pt")
        return tree("ckpt")
        """,
    ),
    Operation(
        "rename there and back",
        """
        os.rename("notes.txt", "n")
        os.rename("n", "notes.txt")
        return [names(), read("notes.txt")]
        """,
    ),
    Operation(
        "rename and make again",
        """
        os.rename("log.txt", "log.1")
        write("log.txt", "fresh")
        return [read("log.1"), read("log.txt")]
        """,
    ),
    Operation("rename what is missing", 'return caught(os.rename, "no", "x")'),
    Operation("rename a file over a folder", 'return [caught(os.rename, "notes.txt", "ckpt"), names("ckpt")]'),
    Operation("rename a folder over a file", 'return [caught(os.rename, "ckpt", "notes.txt"), read("notes.txt")]'),
    Operation("rename a folder over a full one", 'return caught(os.rename, "ckpt", "data")'),
    Operation("rename a folder", 'os.rename("ckpt", "old")\nreturn [names(), tree("old")]'),
    Operation(
        "replace a folder by a new one",
        """
        os.rename("ckpt", "old")
        os.mkdir("ckpt")
        write("ckpt/best.pt", "n")
        return [names("old"), tree("ckpt")]
        """,
    ),
    Operation(
        "rename a folder over an empty one",
        """
        os.mkdir("e")
        os.rename("ckpt", "e")
        return [names(), names("e")]
        """,
    ),
    Operation(
        "rename a new folder over an old name",
        """
        os.mkdir("n")
        write("n/a", "a")
        shutil.rmtree("ckpt")
        os.rename("n", "ckpt")
        return tree("ckpt")
        """,
    ),
    Operation(
        "rename a folder, then write in it",
        """
        os.replace("ckpt", "old")
        write("old/best.pt", "x")
        os.remove("old/last.pt")
        return tree("old")
        """,
    ),
    Operation("rename a folder twice", 'os.rename("data", "d1")\nos.rename("d1", "d2")\nreturn sorted(tree("d2"))'),
    Operation("rename a folder into another", 'os.rename("data", "ckpt/data")\nreturn names("ckpt/data")'),
    Operation("rename a folder into itself", 'return caught(os.rename, "ckpt", "ckpt/in")'),
    Operation(
        "rename a folder with changes in it",
        """
        write("ckpt/new", "n")
        os.remove("ckpt/last.pt")
        os.rename("ckpt", "old")
        return tree("old")
        """,
    ),
    Operation("rename a link", 'os.rename("to_notes", "renamed")\nreturn look("renamed")'),
    Operation("renames", 'os.renames("notes.txt", "a/b/notes.txt")\nreturn tree("a")'),
    Operation("shutil.move of a folder", 'shutil.move("ckpt", "old")\nreturn [names(), tree("old")]'),
    Operation("shutil.move into a folder", 'shutil.move("notes.txt", "ckpt")\nreturn names("ckpt")'),
    Operation(
        "shutil.move elsewhere",
        """
        shutil.move("ckpt", DATA / "ckpt")
        return [os.path.exists("ckpt"), tree(str(DATA / "ckpt"))]
        """,
    ),
    Operation(
        "shutil.move from elsewhere",
        """
        shutil.move(DATA / "models", "models")
        return [names(DATA), tree("models")]
        """,
    ),
    Operation("rename elsewhere", 'os.rename("notes.txt", DATA / "n")\nreturn [names(), read(DATA / "n")]'),
    Operation(
        "pathlib rename and replace",
        """
        Path("notes.txt").rename("a")
        Path("a").replace("log.txt")
        return [names(), read("log.txt")]
        """,
    ),
    Operation(
        "rename across the temporary folder",
        """
        path = tempfile.mkdtemp() + "/t"
        write(path, "t")
        shutil.move(path, "notes.txt")
        return read("notes.txt")
        """,
    ),
    Operation(
        "a file renamed while open",
        """
        f = open("log.txt", "a")
        os.rename("log.txt", "log.1")
        f.write("late")
        f.close()
        return [read("log.1"), os.path.exists("log.txt")]
        """,
    ),
    Operation(
        "a numbered backup chain",
        """
        for n in (2, 1):
            if os.path.exists(f"log.{n}"):
                os.rename(f"log.{n}", f"log.{n + 1}")
        os.rename("log.txt", "log.1")
        return names()
        """,
    ),
    native(
        "exchange two files",
        _RENAMEAT2 + 'exchange(b"notes.txt", b"log.txt", 2)\nreturn [read("notes.txt"), read("log.txt")]',
    ),
    native(
        "exchange a new and an old file",
        _RENAMEAT2 + 'os.close(libc("creat", b"n", 0o644))\n'
        'exchange(b"n", b"notes.txt", 2)\n'
        'return [read("n"), read("notes.txt")]',
    ),
    native(
        "exchange two folders",
        _RENAMEAT2 + 'exchange(b"ckpt", b"data", 2)\nreturn [names("ckpt"), names("data")]',
        namespaces=for_others("denied"),
    ),
    native("rename without replacing", _RENAMEAT2 + 'exchange(b"notes.txt", b"n", 1)\nreturn names()'),
    Operation(
        "rename without replacing, over a file",
        _RENAMEAT2 + 'return [caught(exchange, b"notes.txt", b"log.txt", 1), read("log.txt")]',
        fence="same",
    ),
    native(
        "native rename of a folder",
        'libc("rename", b"ckpt", b"old")\nreturn [names(), tree("old")]',
        namespaces=for_others("denied"),
    ),
    native("native hard link", 'libc("link", b"notes.txt", b"twin")\nreturn look("twin")["links"]'),
    native("native symlink", 'libc("symlink", b"notes.txt", b"ln")\nreturn look("ln")'),
)

ROWS = (*LINKS, *RENAMES)
