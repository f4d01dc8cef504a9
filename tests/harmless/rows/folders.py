"""Folders made, removed, copied and listed."""

from __future__ import annotations

from harmless.operation import Operation

ROWS = (
    Operation("mkdir", 'os.mkdir("made")\nreturn [look("made"), names("made")]'),
    Operation("mkdir with a mode", 'os.mkdir("made", 0o700)\nreturn look("made")'),
    Operation("mkdir over what exists", 'return [caught(os.mkdir, "ckpt"), caught(os.mkdir, "notes.txt")]'),
    Operation(
        "makedirs",
        """
        os.makedirs("a/b/c", exist_ok=True)
        os.makedirs("ckpt", exist_ok=True)
        return names("a/b")
        """,
    ),
    Operation("pathlib mkdir with parents", 'Path("a/b").mkdir(parents=True)\nreturn Path("a/b").is_dir()'),
    Operation("rmdir of a folder with files", 'return [caught(os.rmdir, "ckpt"), names("ckpt")]'),
    Operation(
        "rmdir once it is empty",
        """
        os.remove("data/train.csv")
        os.remove("data/big.bin")
        os.rmdir("data")
        return names()
        """,
    ),
    Operation(
        "rmdir and make again",
        """
        shutil.rmtree("ckpt")
        os.mkdir("ckpt")
        return [names("ckpt"), os.stat("ckpt").st_size >= 0]
        """,
    ),
    Operation("rmtree", 'shutil.rmtree("ckpt")\nreturn [names(), os.path.exists("ckpt/best.pt")]'),
    Operation(
        "rmtree, makedirs, save",
        """
        shutil.rmtree("ckpt")
        os.makedirs("ckpt")
        write("ckpt/best.pt", "new weights")
        return tree("ckpt")
        """,
    ),
    Operation(
        "rmtree and save three times",
        """
        for number in range(3):
            shutil.rmtree("ckpt", ignore_errors=True)
            os.makedirs("ckpt/deep")
            write(f"ckpt/deep/{number}.pt", str(number))
        return tree("ckpt")
        """,
    ),
    Operation(
        "rmtree of what is missing",
        """
        shutil.rmtree("no", ignore_errors=True)
        return caught(shutil.rmtree, "no")
        """,
    ),
    Operation("rmtree of a link to a folder", 'return [caught(shutil.rmtree, "to_data"), names("data")]'),
    Operation(
        "rmtree of everything",
        'shutil.rmtree(".", ignore_errors=True)\nreturn names()',
    ),
    Operation("removedirs", 'os.makedirs("a/b/c")\nos.removedirs("a/b/c")\nreturn names()'),
    Operation("copytree", 'shutil.copytree("ckpt", "backup")\nreturn tree("backup")'),
    Operation(
        "copytree with links",
        """
        shutil.copytree(".", DATA / "copy", symlinks=True)
        return sorted(tree(str(DATA / "copy")))
        """,
        none="same",
    ),
    Operation(
        "copytree over an existing folder",
        """
        shutil.copytree("ckpt", "data", dirs_exist_ok=True)
        return [names("data"), read("data/best.pt") == read("ckpt/best.pt")]
        """,
    ),
    Operation(
        "copyfile",
        """
        shutil.copyfile("ckpt/last.pt", "ckpt/best.pt")
        return read("ckpt/best.pt") == read("ckpt/last.pt")
        """,
    ),
    Operation(
        "copy2 keeps mode and time",
        """
        shutil.copy2("run.sh", "again.sh")
        return [look("again.sh")["mode"], os.stat("again.sh").st_mtime == os.stat("run.sh").st_mtime]
        """,
    ),
    Operation("copy into a folder", 'shutil.copy("notes.txt", "ckpt")\nreturn names("ckpt")'),
    Operation("listdir after deletions", 'os.remove("notes.txt")\nshutil.rmtree("data")\nreturn names()'),
    Operation(
        "scandir after changes",
        """
        os.remove("ckpt/last.pt")
        write("ckpt/third.pt", "x")
        with os.scandir("ckpt") as entries:
            return sorted([it.name, it.is_file(), it.stat().st_size] for it in entries)
        """,
    ),
    Operation(
        "walk after changes",
        """
        shutil.rmtree("ckpt")
        os.makedirs("new/deep")
        return sorted([t, sorted(d), sorted(f)] for t, d, f in os.walk("."))
        """,
    ),
    Operation(
        "fwalk after changes",
        """
        os.remove("ckpt/last.pt")
        return sorted([t, sorted(f)] for t, d, f, _ in os.fwalk("ckpt"))
        """,
    ),
    Operation(
        "glob after changes",
        """
        import glob
        os.remove("ckpt/last.pt")
        write("ckpt/z.pt", "z")
        return [sorted(glob.glob("ckpt/*.pt")), sorted(glob.glob("**/*.pt", recursive=True))]
        """,
    ),
    Operation(
        "rglob after changes",
        """
        os.remove("ckpt/last.pt")
        write("a.pt", "a")
        return sorted(str(it) for it in Path(".").rglob("*.pt"))
        """,
    ),
    Operation(
        "keep the last two checkpoints",
        """
        for step in range(5):
            write(f"ckpt/step-{step}.pt", str(step))
            kept = sorted(Path("ckpt").glob("step-*.pt"))
            for old in kept[:-2]:
                old.unlink()
        return names("ckpt")
        """,
    ),
    Operation(
        "walk bottom-up and delete",
        """
        for top, folders, files in os.walk("data", topdown=False):
            for name in files:
                os.remove(os.path.join(top, name))
            for name in folders:
                os.rmdir(os.path.join(top, name))
        os.rmdir("data")
        return names()
        """,
    ),
    Operation(
        "chdir into a new folder",
        """
        os.makedirs("out/run")
        os.chdir("out/run")
        write("log", "x")
        os.chdir("../..")
        return [os.path.basename(os.getcwd()) != "run", tree("out")]
        """,
    ),
    Operation(
        "chdir and relative paths",
        """
        os.chdir("ckpt")
        write("../notes.txt", "up")
        os.chdir("..")
        return read("notes.txt")
        """,
    ),
    Operation(
        "remove the working folder",
        """
        os.mkdir("w")
        os.chdir("w")
        os.rmdir("../w")
        return caught(open, "file", "w")
        """,
    ),
    Operation(
        "a file for a folder",
        """
        shutil.rmtree("ckpt")
        write("ckpt", "a file now")
        return [look("ckpt"), caught(os.listdir, "ckpt")]
        """,
    ),
    Operation("a folder for a file", 'os.remove("notes.txt")\nos.makedirs("notes.txt/in")\nreturn tree("notes.txt")'),
    Operation("write below a file", 'return caught(open, "notes.txt/x", "w")'),
    Operation("write to a folder", 'return caught(open, "ckpt", "w")'),
    Operation("write into a missing folder", 'return caught(open, "no/such/file", "w")'),
    Operation(
        "forty folders deep",
        """
        path = "/".join(["deep"] * 40)
        os.makedirs(path)
        write(f"{path}/leaf", "leaf")
        return [read(f"{path}/leaf"), len(list(os.walk("deep")))]
        """,
    ),
    Operation(
        "five hundred files",
        """
        for n in range(500):
            write(f"data/{n:03}", str(n))
        return [len(names("data")), read("data/499")]
        """,
    ),
    Operation("statvfs and disk_usage", 'return [os.statvfs(".").f_namemax, shutil.disk_usage(".").total > 0]'),
    Operation(
        "samefile",
        """
        write("notes.txt", "x")
        return [os.path.samefile("notes.txt", "to_notes"), os.path.samefile("pair_a", "notes.txt")]
        """,
    ),
    Operation(
        "stat before and after",
        """
        a = os.stat("notes.txt").st_size
        write("notes.txt", "longer than before")
        return [a, os.stat("notes.txt").st_size]
        """,
    ),
    Operation(
        "modification time moves on",
        """
        before = os.stat("notes.txt").st_mtime_ns
        time.sleep(0.02)
        write("notes.txt", "x")
        return os.stat("notes.txt").st_mtime_ns > before
        """,
    ),
    Operation(
        "a file keeps its inode",
        """
        a = os.stat("notes.txt").st_ino
        fd = os.open("notes.txt", os.O_RDONLY)
        return [os.fstat(fd).st_ino == a, os.lstat("notes.txt").st_ino == a]
        """,
    ),
    Operation(
        "isfile, isdir, islink",
        """
        write("new", "x")
        os.mkdir("dir")
        os.symlink("new", "ln")
        checks = (os.path.isfile, os.path.isdir, os.path.islink)
        return [[check(it) for check in checks] for it in ("new", "dir", "ln", "ckpt", "no")]
        """,
    ),
)
