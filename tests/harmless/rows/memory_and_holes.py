"""Files mapped into memory, and files with holes."""

from __future__ import annotations

from harmless.operation import Operation, native

ROWS = (
    Operation(
        "mmap, shared, an existing file",
        """
        import mmap
        with open("ckpt/best.pt", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            m[:4] = b"MMAP"
            m.flush()
        return read("ckpt/best.pt")[:8]
        """,
    ),
    Operation(
        "mmap, shared, a new file",
        """
        import mmap
        with open("m", "w+b") as f:
            f.truncate(8192)
            with mmap.mmap(f.fileno(), 8192) as m:
                m[5000:5003] = b"new"
        return Path("m").read_bytes()[5000:5003].decode()
        """,
    ),
    Operation(
        "mmap, seen by read while mapped",
        """
        import mmap
        with open("ckpt/best.pt", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            m[0:1] = b"Z"
            return read("ckpt/best.pt")[0]
        """,
    ),
    Operation(
        "mmap, private",
        """
        import mmap
        with open("ckpt/best.pt", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
            m[0:1] = b"Z"
            return [chr(m[0]), read("ckpt/best.pt")[0]]
        """,
    ),
    Operation(
        "mmap, read only",
        """
        import mmap
        with open("ckpt/best.pt", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            return m.find(b"weights")
        """,
    ),
    Operation(
        "mmap, resized",
        """
        import mmap
        with open("notes.txt", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            m.resize(6000)
            m[5999:6000] = b"!"
        return os.path.getsize("notes.txt")
        """,
    ),
    Operation(
        "mmap, written by a forked child",
        """
        import mmap
        with open("ckpt/best.pt", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            status = in_fork(lambda: m.__setitem__(slice(0, 3), b"KID"))
            return [status, m[:3].decode()]
        """,
    ),
    Operation(
        "mmap before another handle writes",
        """
        import mmap
        with open("notes.txt", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            with open("notes.txt", "r+b") as g:
                g.write(b"OTHER")
            return m[:5].decode()
        """,
    ),
    Operation(
        "mapped for reading, written by path",
        """
        import mmap
        with open("notes.txt", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            with open("notes.txt", "r+b") as g:
                g.write(b"OTHER")
            return read("notes.txt")[:5]
        """,
    ),
    Operation(
        "numpy memmap, an existing file",
        """
        import numpy
        m = numpy.memmap("ckpt/best.pt", dtype="uint8", mode="r+")
        m[:3] = 65
        m.flush()
        return read("ckpt/best.pt")[:5]
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy memmap, a new file",
        """
        import numpy
        m = numpy.memmap("m.dat", dtype="float32", mode="w+", shape=(10, 10))
        m[:] = 2
        del m
        return float(numpy.fromfile("m.dat", "float32").sum())
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy memmap, copy on write",
        """
        import numpy
        m = numpy.memmap("ckpt/best.pt", dtype="uint8", mode="c")
        m[:3] = 65
        return read("ckpt/best.pt")[:3]
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy open_memmap",
        """
        import numpy
        m = numpy.lib.format.open_memmap("o.npy", mode="w+", shape=(4,))
        m[:] = 3
        m.flush()
        return numpy.load("o.npy", mmap_mode="r").tolist()
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy save and load",
        """
        import numpy
        numpy.save("a.npy", numpy.arange(4))
        numpy.savez("b.npz", x=numpy.ones(2))
        return [numpy.load("a.npy").tolist(), numpy.load("b.npz")["x"].tolist()]
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy tofile over a file",
        """
        import numpy
        numpy.arange(3, dtype="uint8").tofile("notes.txt")
        return numpy.fromfile("notes.txt", "uint8").tolist()
        """,
        needs=("numpy",),
    ),
    Operation(
        "numpy savetxt",
        """
        import numpy
        numpy.savetxt("t.txt", numpy.eye(2), fmt="%d")
        return [read("t.txt"), numpy.loadtxt("t.txt").tolist()]
        """,
        needs=("numpy",),
    ),
    Operation(
        "a new file with a hole",
        """
        with open("s", "wb") as f:
            f.seek(1 << 22)
            f.write(b"end")
        s = os.stat("s")
        return [s.st_size, s.st_blocks * 512 < 1 << 20]
        """,
    ),
    Operation(
        "read a file with a hole",
        """
        with open("data/big.bin", "rb") as f:
            start = f.read(4)
            f.seek(-4, 2)
            return [start.decode(), f.read().decode(), os.stat("data/big.bin").st_blocks * 512 < 1 << 21]
        """,
    ),
    Operation(
        "write into a file with a hole",
        """
        with open("data/big.bin", "r+b") as f:
            f.seek(1 << 20)
            f.write(b"middle")
            f.seek((1 << 20) - 2)
            return [list(f.read(4)), os.path.getsize("data/big.bin")]
        """,
    ),
    Operation(
        "append to a file with a hole",
        """
        with open("data/big.bin", "ab") as f:
            f.write(b"more")
        return [os.path.getsize("data/big.bin"), Path("data/big.bin").read_bytes()[-8:].decode()]
        """,
    ),
    Operation(
        "holes stay after a write",
        """
        with open("data/big.bin", "r+b") as f:
            f.write(b"x")
        return os.stat("data/big.bin").st_blocks * 512 < 1 << 21
        """,
    ),
    Operation(
        "seek data and holes",
        """
        fd = os.open("data/big.bin", os.O_RDONLY)
        return [os.lseek(fd, 0, os.SEEK_HOLE) < 1 << 20, os.lseek(fd, 1 << 20, os.SEEK_DATA) > 1 << 21]
        """,
    ),
    Operation(
        "punch a hole",
        """
        fd = os.open("ckpt/best.pt", os.O_RDWR)
        libc("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(10))
        return list(os.pread(fd, 12, 0))
        """,
    ),
    native(
        "cp of a file with a hole",
        """
        run("cp", "--sparse=always", "data/big.bin", "copy.bin")
        return [os.path.getsize("copy.bin"), os.stat("copy.bin").st_blocks * 512 < 1 << 20]
        """,
    ),
    native(
        "fallocate",
        """
        run("fallocate", "-l", "100000", "f.bin")
        return os.path.getsize("f.bin")
        """,
        needs=("fallocate",),
    ),
)
