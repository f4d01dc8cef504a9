"""Python processes that the script starts: forked, spawned, with other environments, as daemons; and threads."""

from __future__ import annotations

from harmless.operation import Operation, native

_WRITES = "open('notes.txt', 'w').write('by a child'); import shutil; shutil.rmtree('ckpt')"
_SEEN = 'return [read("notes.txt"), os.path.exists("ckpt")]'


def _child(name: str, call: str) -> Operation:
    return native(name, f'code = "{_WRITES}"\n{call}\n{_SEEN}')


def _child_with_hotlap(name: str, environment: str) -> Operation:
    return Operation(name, f'code = "{_WRITES}"\npython(code, env={environment})\n{_SEEN}')


_DAEMON = """
pid = os.fork()
if pid == 0:
    os.setsid()
    if os.fork() == 0:
        {body}
    os._exit(0)
os.waitpid(pid, 0)
"""

CHILDREN = (
    Operation("a Python child", f'code = "{_WRITES}"\npython(code)\n{_SEEN}'),
    _child("python -S", 'python(code, "-S")'),
    _child("python -I", 'python(code, "-I")'),
    _child("python -E", 'python(code, "-E")'),
    _child("python -I -S -E", 'python(code, "-I", "-S", "-E")'),
    _child("a child with an empty environment", "python(code, env={})"),
    _child_with_hotlap("a child whose PYTHONPATH is overwritten", '{**os.environ, "PYTHONPATH": "src"}'),
    _child_with_hotlap("a child without PYTHONPATH", '{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}'),
    _child("a child by env -i", 'run("env", "-i", sys.executable, "-c", code)'),
    _child("a child by the shell", 'sh(f"unset PYTHONPATH; {shlex.quote(sys.executable)} -c {shlex.quote(code)}")'),
    Operation(
        "a child sees what was written",
        """
        write("notes.txt", "by the parent")
        return python("print(open('notes.txt').read())")
        """,
    ),
    native(
        "a child without hooks sees what was written",
        """
        write("notes.txt", "by the parent")
        return python("print(open('notes.txt').read())", "-I", "-S")
        """,
        fence="differs",
        none="differs",
    ),
    Operation(
        "what a child wrote is seen",
        """
        python("open('c.txt', 'w').write('c')")
        return [read("c.txt"), names()]
        """,
    ),
    Operation(
        "a grandchild",
        """
        code = "open(chr(103), chr(119)).write(chr(120))"
        python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{code}'], check=True)")
        return [names(), read("g")]
        """,
    ),
    Operation(
        "a child in another folder",
        """
        subprocess.run([sys.executable, "-c", "open('x', 'w').write('x')"], cwd="ckpt", check=True)
        return names("ckpt")
        """,
    ),
    Operation("os.fork", 'status = in_fork(lambda: write("notes.txt", "forked"))\nreturn [status, read("notes.txt")]'),
    Operation("os.fork, deletes", 'status = in_fork(lambda: shutil.rmtree("ckpt"))\nreturn [status, names()]'),
    Operation(
        "two forks append to a log",
        """
        for number in range(2):
            in_fork(lambda: open("log.txt", "a").write(f"{number}\\n"))
        return read("log.txt")
        """,
    ),
    Operation(
        "a fork with a file open",
        """
        with open("notes.txt", "r+") as file:
            in_fork(lambda: os.write(file.fileno(), b"KID"))
        return read("notes.txt")
        """,
    ),
    Operation(
        "os.posix_spawn with output into a file",
        """
        actions = [(os.POSIX_SPAWN_OPEN, 1, "out", os.O_WRONLY | os.O_CREAT, 0o644)]
        pid = os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ, file_actions=actions)
        exits_well(os.waitpid(pid, 0)[1])
        return read("out")
        """,
        fence="denied",
        none="harms",
    ),
    Operation(
        "os.execv after a fork",
        """
        pid = os.fork()
        if pid == 0:
            os.execv("/bin/sh", ["sh", "-c", "echo x > notes.txt"])
        exits_well(os.waitpid(pid, 0)[1])
        return read("notes.txt")
        """,
        fence="denied",
        none="harms",
    ),
    Operation(
        "a double-forked daemon",
        _DAEMON.format(body='write("daemon.txt", "daemon\\n")') + 'return wait_for("daemon.txt")',
    ),
    native(
        "a daemon with an empty environment",
        _DAEMON.format(body='os.execve("/bin/sh", ["sh", "-c", "rm -rf ckpt; echo d > notes.txt"], {})')
        + "deadline = time.time() + 5\n"
        'while time.time() < deadline and read("notes.txt") != "d\\n":\n'
        "    time.sleep(0.02)\n"
        'assert read("notes.txt") == "d\\n", "the daemon could not write"\n'
        "return names()",
    ),
    native(
        "nohup in the background",
        """
        sh("(nohup sh -c 'sleep 0.1; echo late > late.txt' >/dev/null 2>&1 &)")
        return wait_for("late.txt", 3)
        """,
    ),
    native(
        "setsid in the background",
        """
        sh("setsid sh -c 'echo s > s.txt' >/dev/null 2>&1 &")
        return wait_for("s.txt", 3)
        """,
    ),
)

POOLS = (
    Operation(
        "threads",
        """
        import threading
        def save(n):
            write(f"ckpt/{n}.pt", str(n))
        threads = [threading.Thread(target=save, args=(n,)) for n in range(8)]
        [it.start() for it in threads]
        [it.join() for it in threads]
        return tree("ckpt")
        """,
    ),
    Operation(
        "a pool of threads deletes and writes",
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: (write(f"f{n}", "x"), os.remove(f"f{n}")), range(40)))
        return names()
        """,
    ),
    Operation(
        "multiprocessing by fork",
        """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=write, args=("mp.txt", "fork"))
        child.start()
        child.join()
        return [child.exitcode, read("mp.txt")]
        """,
    ),
    Operation(
        "multiprocessing by spawn",
        """
        import multiprocessing
        child = multiprocessing.get_context("spawn").Process(target=shutil.rmtree, args=("ckpt",))
        child.start()
        child.join()
        return [child.exitcode, names()]
        """,
    ),
    Operation(
        "multiprocessing by forkserver",
        """
        import multiprocessing
        child = multiprocessing.get_context("forkserver").Process(target=os.mkdir, args=("served",))
        child.start()
        child.join()
        return [child.exitcode, names()]
        """,
    ),
    Operation(
        "a pool of processes",
        """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.starmap(write, [(f"p{n}", str(n)) for n in range(4)])
        return [names(), read("p3")]
        """,
    ),
    Operation(
        "a queue between processes",
        """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=queue.put, args=("hello",))
        child.start()
        value = queue.get(timeout=10)
        child.join()
        return value
        """,
    ),
    Operation(
        "a manager",
        """
        import multiprocessing
        with multiprocessing.get_context("fork").Manager() as manager:
            shared = manager.dict()
            shared["a"] = 1
            return dict(shared)
        """,
    ),
    Operation(
        "shared memory",
        """
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=16)
        in_fork(lambda: block.buf.__setitem__(0, 7))
        value = block.buf[0]
        block.close()
        block.unlink()
        return value
        """,
    ),
    Operation(
        "a semaphore between processes",
        """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        lock = context.Semaphore(0)
        child = context.Process(target=lock.release)
        child.start()
        return [lock.acquire(timeout=10), child.join()]
        """,
    ),
    Operation(
        "a ProcessPoolExecutor",
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            pool.submit(write, "e.txt", "pool").result()
        return read("e.txt")
        """,
    ),
    Operation(
        "asyncio and a program",
        """
        import asyncio
        async def go():
            child = await asyncio.create_subprocess_exec("cat", "notes.txt", stdout=asyncio.subprocess.PIPE)
            return (await child.communicate())[0].decode()
        return asyncio.run(go())
        """,
    ),
    Operation(
        "joblib memory",
        """
        import joblib
        memory = joblib.Memory("cache", verbose=0)
        return [memory.cache(len)("abc"), os.path.isdir("cache")]
        """,
        needs=("joblib",),
    ),
    Operation(
        "joblib dump",
        """
        import joblib
        joblib.dump([1, 2], "j.pkl")
        return joblib.load("j.pkl")
        """,
        needs=("joblib",),
    ),
)

ROWS = (*CHILDREN, *POOLS)
