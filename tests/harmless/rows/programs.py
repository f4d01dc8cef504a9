"""Files changed by other programs that the script starts."""

from __future__ import annotations

from harmless.operation import Operation, for_others, native

REMOVING = (
    native("os.system rm -rf", 'exits_well(os.system("rm -rf ckpt"))\nreturn names()'),
    native(
        "rm -rf and makedirs",
        """
        exits_well(os.system("rm -rf ckpt"))
        os.makedirs("ckpt", exist_ok=True)
        write("ckpt/best.pt", "n")
        return tree("ckpt")
        """,
    ),
    native("rm of a file", 'run("rm", "notes.txt")\nreturn names()'),
    native(
        "rm -rf of everything",
        # Only an administrator may empty the closed folder.
        'sh("find . -mindepth 1 -maxdepth 1 ! -name closed -exec rm -rf {} +")\nreturn names()',
        needs=("find",),
    ),
    native("unlink", 'run("unlink", "to_notes")\nreturn names()'),
    native("rmdir", 'sh("rm ckpt/*; rmdir ckpt")\nreturn names()'),
    native("find -delete", 'run("find", "ckpt", "-name", "*.pt", "-delete")\nreturn names("ckpt")', needs=("find",)),
    native(
        "find -exec rm",
        """
        run("find", ".", "-name", "*.csv", "-exec", "rm", "{}", "+")
        return names("data")
        """,
        needs=("find",),
    ),
    native("xargs rm", 'sh("ls ckpt/*.pt | xargs rm")\nreturn names("ckpt")', needs=("xargs",)),
    native("shred", 'run("shred", "-n", "1", "-u", "notes.txt")\nreturn names()', needs=("shred",)),
)

WRITING = (
    native("sh writes", "sh(\"echo 'by sh' > notes.txt\")\nreturn look('notes.txt')"),
    native("sh writes a new file", "sh(\"echo new > fresh.txt\")\nreturn look('fresh.txt')"),
    native("sh appends", 'sh("echo more >> log.txt")\nreturn read("log.txt")'),
    native(
        "subprocess with shell=True",
        """
        subprocess.run("echo x > notes.txt", shell=True, check=True)
        return look("notes.txt")
        """,
    ),
    native(
        "os.popen writes",
        """
        pipe = os.popen("cat > notes.txt", "w")
        pipe.write("piped")
        assert pipe.close() is None, "cat failed"
        return look("notes.txt")
        """,
    ),
    Operation(
        "output of a program into a file",
        """
        with open("out.txt", "w") as out:
            subprocess.run(["echo", "captured"], stdout=out, check=True)
        return read("out.txt")
        """,
    ),
    Operation(
        "output of a program appended to a log",
        """
        with open("log.txt", "a") as out:
            subprocess.run(["echo", "captured"], stdout=out, check=True)
        return read("log.txt")
        """,
    ),
    Operation(
        "errors of a program into a file",
        """
        with open("err.txt", "w") as out:
            subprocess.run(["ls", "/no/such"], stderr=out, check=False)
        return "no/such" in read("err.txt")
        """,
    ),
    Operation(
        "a file as a program's input",
        """
        with open("notes.txt") as source:
            return subprocess.run(["cat"], stdin=source, stdout=subprocess.PIPE, text=True, check=True).stdout
        """,
    ),
    Operation(
        "a written file as a program's input",
        """
        write("notes.txt", "rewritten")
        with open("notes.txt") as source:
            return subprocess.run(["cat"], stdin=source, stdout=subprocess.PIPE, text=True, check=True).stdout
        """,
    ),
    native("tee", 'run("tee", "notes.txt", feed="teed")\nreturn look("notes.txt")'),
    native(
        "dd",
        """
        run("dd", "if=/dev/zero", "of=ckpt/best.pt", "bs=10", "count=1", "conv=notrunc", "status=none")
        return look("ckpt/best.pt")
        """,
    ),
    native("truncate", 'run("truncate", "-s", "3", "notes.txt")\nreturn look("notes.txt")'),
    native("split", 'run("split", "-b", "300", "ckpt/best.pt", "part-")\nreturn names()'),
    native("sort -o", 'run("sort", "-r", "-o", "notes.txt", "notes.txt")\nreturn read("notes.txt")'),
    native("sed -i", 'run("sed", "-i", "s/first/FIRST/", "notes.txt")\nreturn look("notes.txt")', needs=("sed",)),
    native(
        "perl -pi",
        """
        run("perl", "-pi", "-e", "s/first/FIRST/", "notes.txt")
        return look("notes.txt")
        """,
        needs=("perl",),
        fence="differs",
    ),
    native("awk", 'run("awk", "{print > \\"awk.out\\"}", "notes.txt")\nreturn read("awk.out")', needs=("awk",)),
    native("ed", 'run("ed", "-s", "notes.txt", feed="1d\\nw\\nq\\n")\nreturn read("notes.txt")', needs=("ed",)),
    native(
        "patch",
        """
        run("patch", "-s", "notes.txt", feed="--- a\\n+++ b\\n@@ -1,2 +1,2 @@\\n-first\\n+FIRST\\n second\\n")
        return read("notes.txt")
        """,
        needs=("patch",),
    ),
    native(
        "make",
        """
        run("make", "-s", "-f", "-", feed="all: ; echo made > made.txt\\n")
        return read("made.txt")
        """,
        needs=("make",),
    ),
    native("mkdir -p", 'run("mkdir", "-p", "a/b")\nreturn tree("a")'),
    native("mktemp here", 'name = run("mktemp", "XXXXXX.tmp").strip()\nreturn look(name)'),
)

MOVING = (
    native("cp", 'run("cp", "ckpt/last.pt", "ckpt/best.pt")\nreturn read("ckpt/best.pt") == read("ckpt/last.pt")'),
    native("cp -r", 'run("cp", "-r", "ckpt", "backup")\nreturn tree("backup")'),
    native("cp -a", 'run("cp", "-a", ".", str(DATA / "all"))\nreturn sorted(tree(str(DATA / "all")))'),
    native(
        "cp -l",
        'run("cp", "-l", "notes.txt", "twin")\nreturn os.path.samefile("notes.txt", "twin")',
        namespaces=for_others("differs"),
    ),
    native("mv", 'run("mv", "notes.txt", "moved.txt")\nreturn names()'),
    native("mv over a file", 'run("mv", "ckpt/last.pt", "ckpt/best.pt")\nreturn tree("ckpt")'),
    native("mv of a folder", 'run("mv", "ckpt", "old")\nreturn [names(), tree("old")]'),
    native(
        "mv of a folder, then write",
        """
        run("mv", "ckpt", "old")
        os.makedirs("ckpt")
        write("ckpt/best.pt", "n")
        return [names("old"), tree("ckpt")]
        """,
    ),
    native("mv elsewhere", 'run("mv", "ckpt", str(DATA))\nreturn [names(), names(DATA)]'),
    native("ln", 'run("ln", "notes.txt", "twin")\nreturn look("twin")["links"]'),
    native("ln -s", 'run("ln", "-s", "ckpt/best.pt", "latest")\nreturn look("latest")'),
    native("ln -sfn", 'run("ln", "-sfn", "ckpt", "to_data")\nreturn look("to_data")'),
    native("install", 'run("install", "-m", "600", "notes.txt", "installed")\nreturn look("installed")'),
    native("install -d", 'run("install", "-d", "x/y")\nreturn tree("x")'),
    native("rsync", 'run("rsync", "-a", "ckpt/", "backup/")\nreturn tree("backup")', needs=("rsync",)),
    native(
        "rsync --delete",
        """
        run("rsync", "-a", "--delete", "data/", "ckpt/")
        return names("ckpt")
        """,
        needs=("rsync",),
    ),
    native(
        "tar",
        """
        run("tar", "-cf", "all.tar", "ckpt")
        run("rm", "-r", "ckpt")
        run("tar", "-xf", "all.tar")
        return tree("ckpt")
        """,
        needs=("tar",),
    ),
    native(
        "tar extracts over files",
        """
        run("tar", "-cf", "n.tar", "notes.txt")
        write("notes.txt", "x")
        run("tar", "-xf", "n.tar")
        return read("notes.txt")
        """,
        needs=("tar",),
    ),
    native("gzip", 'run("gzip", "notes.txt")\nreturn names()', needs=("gzip",)),
    native(
        "gzip and gunzip",
        """
        run("gzip", "ckpt/best.pt")
        run("gunzip", "ckpt/best.pt.gz")
        return tree("ckpt")
        """,
        needs=("gzip",),
    ),
    native("xz", 'run("xz", "notes.txt")\nreturn names()', needs=("xz",)),
    native("bzip2", 'run("bzip2", "notes.txt")\nreturn names()', needs=("bzip2",)),
    native(
        "zip and unzip",
        """
        run("zip", "-q", "c.zip", "ckpt/best.pt")
        run("unzip", "-q", "-o", "c.zip", "-d", "out")
        return sorted(tree("out"))
        """,
        needs=("zip", "unzip"),
    ),
    native(
        "git init and commit",
        """
        sh("git init -q . && git add notes.txt && git -c user.name=a -c user.email=a@b commit -q -m m")
        return run("git", "ls-files").split()
        """,
        needs=("git",),
    ),
    native(
        "git clean",
        """
        sh("git init -q . && git add notes.txt && git clean -fdxq -- ckpt data")
        return [os.path.exists("ckpt/best.pt"), os.path.exists("data/train.csv")]
        """,
        needs=("git",),
    ),
    native(
        "cc",
        """
        sh("echo 'int main(void){return 0;}' > m.c && gcc -o m m.c && ./m")
        return os.access("m", os.X_OK)
        """,
        needs=("gcc",),
    ),
)

AFTER_PYTHON = (
    native(
        "open, then cp",
        """
        write("new.txt", "n")
        run("cp", "new.txt", "copy.txt")
        return read("copy.txt")
        """,
        none="differs",
    ),
    native(
        "open, then mv",
        """
        write("ckpt/tmp.pt", "n")
        run("mv", "ckpt/tmp.pt", "ckpt/best.pt")
        return tree("ckpt")
        """,
        none="differs",
    ),
    native(
        "open, then gzip",
        """
        write("new.log", "n")
        run("gzip", "new.log")
        return names()
        """,
        none="differs",
        needs=("gzip",),
    ),
    native("open, then rm", 'write("new.log", "n")\nrun("rm", "new.log")\nreturn names()', none="differs"),
    native(
        "makedirs, then a program writes into it",
        """
        os.makedirs("out/x")
        run("cp", "notes.txt", "out/x/")
        return names("out/x")
        """,
        none="differs",
    ),
    native(
        "chdir to a new folder, then a program",
        """
        os.makedirs("w")
        os.chdir("w")
        sh("echo x > f")
        return read("f")
        """,
        fence="same",
        none="same",
    ),
    Operation(
        "open, then cat",
        """
        write("fresh.txt", "fresh")
        return run("cat", "fresh.txt")
        """,
        fence="denied",
        none="differs",
    ),
    Operation(
        "overwrite, then cat",
        """
        write("notes.txt", "changed")
        return run("cat", "notes.txt")
        """,
        fence="differs",
        none="differs",
    ),
    Operation("delete, then ls", 'shutil.rmtree("ckpt")\nreturn run("ls").split()', fence="differs", none="differs"),
    Operation(
        "append, then wc",
        """
        open("log.txt", "a").write("two\\nthree\\n")
        return run("wc", "-l", "log.txt").split()[0]
        """,
        fence="differs",
        none="differs",
    ),
    Operation(
        "a program reads what was there",
        'return [run("cat", "notes.txt"), run("ls", "ckpt").split(), run("sha1sum", "ckpt/best.pt").split()[0]]',
    ),
    Operation("cwd of a program", 'return [os.path.basename(run("pwd").strip()), os.path.basename(os.getcwd())]'),
    Operation(
        "a program in a folder",
        'return subprocess.run(["ls"], cwd="ckpt", stdout=subprocess.PIPE, text=True, check=True).stdout.split()',
    ),
    Operation(
        "a program in a new folder",
        """
        os.makedirs("new")
        done = subprocess.run(["pwd"], cwd="new", stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip().endswith("/new")
        """,
    ),
    Operation("run the project's script", 'return run("./run.sh")'),
    Operation(
        "a program writes to a pipe that Python reads",
        """
        child = subprocess.Popen(["cat", "notes.txt"], stdout=subprocess.PIPE)
        write("copy.txt", child.stdout.read().decode())
        child.wait()
        return read("copy.txt")
        """,
    ),
    Operation("program writes to /dev/null", 'exits_well(os.system("echo x > /dev/null"))\nreturn "done"'),
)

ROWS = (*REMOVING, *WRITING, *MOVING, *AFTER_PYTHON)
