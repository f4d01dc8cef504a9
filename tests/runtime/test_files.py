"""Scripts as people write them, run as a trial runs them: they see what they wrote, and the user's files stay."""

from __future__ import annotations

import subprocess

from desk import Desk


def test_a_checkpoint_is_read_back_and_the_users_own_stays(desk: Desk) -> None:
    desk.give(best_pt="the user's best")
    seen = desk.run("""
        import pickle
        for score in (1, 2):
            with open("best.pt", "wb") as file:
                pickle.dump({"score": score}, file)
        print(pickle.load(open("best.pt", "rb")), open("best.pt", "rb").name)
    """)
    assert seen == "{'score': 2} best.pt"
    assert desk.kept() == {"best.pt": "the user's best"}
    assert desk.written == {str(desk.work / "best.pt"): True}


def test_a_log_is_added_to_a_copy(desk: Desk) -> None:
    desk.give(train_log="yesterday\n")
    seen = desk.run("""
        import csv, logging
        logging.basicConfig(filename="train.log", level=logging.INFO, format="%(message)s")
        logging.info("today")
        with open("train.log", "a") as file:
            csv.writer(file).writerow(["loss", 1])
        print(open("train.log").read().split())
    """)
    assert seen == "['yesterday', 'today', 'loss,1']"
    assert desk.kept() == {"train.log": "yesterday\n"}


def test_rotation_spares_the_users_old_checkpoints(desk: Desk) -> None:
    desk.give(runs__old__model_pt="precious", runs__older__model_pt="precious too")
    seen = desk.run("""
        import glob, os, shutil
        from pathlib import Path
        os.makedirs("runs/new", exist_ok=True)
        Path("runs/new/model.pt").write_text("fresh")
        shutil.rmtree("runs/old")
        os.remove("runs/older/model.pt")
        os.rmdir("runs/older")
        print(sorted(glob.glob("runs/**", recursive=True)), os.path.exists("runs/old"))
        os.makedirs("runs/old")
        print(os.listdir("runs/old"), sorted(p.name for p in Path("runs").iterdir()))
        shutil.rmtree("runs")
        print(os.path.exists("runs"), os.listdir())
    """)
    assert seen.splitlines() == [
        "['runs/', 'runs/new', 'runs/new/model.pt'] False",
        "[] ['new', 'old']",
        "False []",
    ]
    assert desk.kept() == {"runs/old/model.pt": "precious", "runs/older/model.pt": "precious too"}


def test_atomic_saves_and_renames_stay_above(desk: Desk) -> None:
    desk.give(last_pt="kept", out__a_txt="a", out__sub__b_txt="b")
    seen = desk.run("""
        import os, shutil, tempfile
        with open("last.pt.tmp", "w") as file:
            file.write("new")
        os.replace("last.pt.tmp", "last.pt")
        os.rename("out", "moved")
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write("from elsewhere")
        shutil.move(file.name, "arrived.txt")
        print(open("last.pt").read(), open("moved/sub/b.txt").read(), os.path.exists("out"), open("arrived.txt").read())
        print(sorted(os.listdir()), os.path.exists(file.name))
    """)
    assert seen.splitlines() == ["new b False from elsewhere", "['arrived.txt', 'last.pt', 'moved'] False"]
    assert desk.kept() == {"last.pt": "kept", "out/a.txt": "a", "out/sub/b.txt": "b"}


def test_changing_into_a_folder_that_only_the_overlay_has(desk: Desk) -> None:
    desk.give(data__x_txt="x")
    seen = desk.run("""
        import os, sqlite3
        os.makedirs("outputs/run")
        os.chdir("outputs/run")
        open("config.yaml", "w").close()
        sqlite3.connect("log.db").execute("create table t (a)")
        print(os.path.relpath(os.getcwd(), "../.."), sorted(os.listdir()), open("../../data/x.txt").read())
        os.chdir("../..")
        print(sorted(os.listdir()), sorted(os.listdir("outputs/run")))
    """)
    assert seen.splitlines() == [
        "outputs/run ['config.yaml', 'log.db'] x",
        "['data', 'outputs'] ['config.yaml', 'log.db']",
    ]
    assert desk.kept() == {"data/x.txt": "x"}


def test_links_lead_to_what_the_script_wrote(desk: Desk) -> None:
    desk.give(real__best_pt="old")
    (desk.work / "link").symlink_to("real")
    (desk.work / "best.pt").symlink_to("real/best.pt")
    seen = desk.run("""
        import os
        open("link/best.pt", "w").write("new")
        print(open("real/best.pt").read(), open("best.pt").read(), os.path.getsize("best.pt"))
        os.symlink("real", "latest")
        open("latest/epoch.txt", "w").write("1")
        print(sorted(os.listdir("real")), os.readlink("latest"), os.path.islink("best.pt"))
    """)
    assert seen.splitlines() == ["new new 3", "['best.pt', 'epoch.txt'] real True"]
    assert (desk.work / "real" / "best.pt").read_text() == "old"
    assert sorted(it.name for it in desk.work.iterdir()) == ["best.pt", "link", "real"]


def test_every_way_to_read_a_file_agrees(desk: Desk) -> None:
    desk.give(old_txt="1", gone_txt="2", d__x_txt="3")
    seen = desk.run("""
        import fnmatch, glob, os
        from pathlib import Path
        os.remove("gone.txt")
        Path("new.txt").touch()
        Path("d", "y.txt").write_bytes(b"y")
        expected = ["d", "d/x.txt", "d/y.txt", "new.txt", "old.txt"]
        assert sorted(map(str, Path().rglob("*"))) == expected
        assert sorted(glob.glob("**", recursive=True)) == expected
        assert sorted(glob.iglob("*.txt")) == ["new.txt", "old.txt"]
        assert sorted(os.listdir(b".")) == [b"d", b"new.txt", b"old.txt"]
        assert sorted(it.path for it in os.scandir(b"d")) == [b"d/x.txt", b"d/y.txt"]
        assert [(top, d, sorted(f)) for top, d, f in os.walk("d")] == [("d", [], ["x.txt", "y.txt"])]
        assert [(top, d, sorted(f)) for top, d, f, _ in os.fwalk("d")] == [("d", [], ["x.txt", "y.txt"])]
        assert not Path("gone.txt").exists() and Path("new.txt").is_file() and not os.access("gone.txt", os.F_OK)
        assert os.stat("d/y.txt").st_size == 1 and Path("d/y.txt").resolve() == Path.cwd() / "d/y.txt"
        with os.scandir() as entries:
            assert {it.name: it.is_dir() for it in entries} == {"d": True, "new.txt": False, "old.txt": False}
        try:
            open("gone.txt")
        except FileNotFoundError as failure:
            assert failure.filename == "gone.txt", failure
        else:
            raise AssertionError("what was removed is gone")
        print("agreed")
    """)
    assert seen == "agreed"
    assert desk.kept() == {"old.txt": "1", "gone.txt": "2", "d/x.txt": "3"}


def test_open_stays_what_it_was(desk: Desk) -> None:
    desk.give(a_txt="text")
    seen = desk.run("""
        import bz2, io, os, pickle, tarfile
        class Reader:
            opener = open
            def read(self):
                return self.opener("a.txt").read()
        assert Reader().read() == "text"
        assert open is io.open and pickle.loads(pickle.dumps(open)) is open
        assert pickle.loads(pickle.dumps(os.stat)) is os.stat and os.stat in os.supports_fd
        with bz2.open("a.bz2", "wb") as file:
            file.write(b"packed")
        assert bz2.open("a.bz2").read() == b"packed"
        with tarfile.open("a.tar", "w") as archive:
            archive.add("a.txt")
        assert tarfile.open("a.tar").getnames() == ["a.txt"]
        with open("a.txt", opener=lambda path, flags: os.open(path, flags)) as file:
            assert file.read() == "text"
        read_end, write_end = os.pipe()
        with open(write_end, "w") as file:
            file.write("piped")
        assert open(read_end).read() == "piped"
        print("stayed")
    """)
    assert seen == "stayed"
    assert desk.kept() == {"a.txt": "text"}


def test_numpy_writes_and_maps_copies(desk: Desk) -> None:
    desk.give(data_bin="\0" * 16)
    seen = desk.run("""
        import numpy as np
        np.save("x.npy", np.arange(3)); np.savez("y.npz", a=np.ones(2)); np.arange(2).tofile("raw.bin")
        np.savetxt("t.txt", np.ones(2))
        mapped = np.memmap("data.bin", dtype=np.uint8, mode="r+")
        mapped[:] = 7
        mapped.flush()
        print(np.load("x.npy"), np.load("y.npz")["a"], np.fromfile("raw.bin", dtype=int))
        print(open("data.bin", "rb").read(2))
    """)
    assert seen.splitlines() == ["[0 1 2] [1. 1.] [0 1]", r"b'\x07\x07'"]
    assert desk.kept() == {"data.bin": "\0" * 16}


def test_torch_and_safetensors_write_through_native_code(desk: Desk) -> None:
    desk.give(model_pt="mine", model_safetensors="mine", scripted_pt="mine")
    seen = desk.run("""
        import warnings
        warnings.simplefilter("ignore")
        import os, torch
        import numpy as np
        import safetensors
        import safetensors.numpy
        import safetensors.torch
        torch.save({"w": torch.ones(2)}, "model.pt")
        os.makedirs("out")
        torch.save({"w": torch.zeros(2)}, os.path.join("out", "old.pt"), _use_new_zipfile_serialization=False)
        assert torch.load("model.pt")["w"].sum() == 2 and torch.load("out/old.pt")["w"].sum() == 0
        assert torch.load("model.pt", mmap=True)["w"].sum() == 2
        safetensors.torch.save_file({"w": torch.ones(3)}, "model.safetensors")
        assert safetensors.torch.load_file("model.safetensors")["w"].sum() == 3
        with safetensors.safe_open("model.safetensors", framework="np") as file:
            assert list(file.keys()) == ["w"]
        safetensors.numpy.save_file({"w": np.ones(4)}, "out/four.safetensors")
        assert safetensors.numpy.load_file("out/four.safetensors")["w"].sum() == 4
        scripted = torch.jit.script(torch.nn.Linear(2, 1))
        torch.jit.save(scripted, "scripted.pt"); scripted.save("out/scripted.pt")
        assert torch.jit.load("scripted.pt")(torch.ones(1, 2)).shape == (1, 1)
        assert isinstance(torch.jit.load("out/scripted.pt"), torch.jit.ScriptModule)
        try:
            torch.save({}, "missing/model.pt")
        except RuntimeError as failure:
            print(type(failure).__name__)
        import torch.distributed.checkpoint as checkpoint
        checkpoint.save({"w": torch.ones(2)}, checkpoint_id="sharded", no_dist=True)
        state = {"w": torch.zeros(2)}
        checkpoint.load(state, checkpoint_id="sharded", no_dist=True)
        print(state["w"].sum().item())
    """)
    assert seen.splitlines() == ["RuntimeError", "2.0"]
    assert desk.kept() == {"model.pt": "mine", "model.safetensors": "mine", "scripted.pt": "mine"}
    assert desk.written[str(desk.work / "model.safetensors")]


def test_loader_workers_write_to_the_same_overlay(desk: Desk) -> None:
    desk.give(cache__x_txt="old")
    seen = desk.run("""
        import os
        from torch.utils.data import DataLoader, Dataset
        class Items(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                with open("cache/x.txt", "a") as file:
                    file.write(str(index))
                os.makedirs(f"made/{index}")
                return index
        if __name__ == "__main__":
            os.path.exists("made/0")
            assert sorted(batch.item() for batch in DataLoader(Items(), num_workers=2)) == [0, 1, 2, 3]
            print(sorted(open("cache/x.txt").read()), sorted(os.listdir("made")), os.path.exists("made/0"))
    """)
    assert seen == "['0', '1', '2', '3', 'd', 'l', 'o'] ['0', '1', '2', '3'] True"
    assert desk.kept() == {"cache/x.txt": "old"}
    assert desk.written == {str(desk.work / "cache" / "x.txt"): True}


def test_processes_side_by_side_see_each_others_files(desk: Desk) -> None:
    desk.give(shared_txt="mine\n")
    command = desk.command("""
        import os, sys, time
        me, other = os.environ["RANK"], str(1 - int(os.environ["RANK"]))
        os.path.exists(f"out/{other}/done")
        os.makedirs(f"out/{me}", exist_ok=True)
        for step in range(200):
            with open("shared.txt", "a") as file:
                file.write(f"{me}\\n")
        open(f"out/{me}/done", "w").close()
        until = time.monotonic() + 30
        while not os.path.exists(f"out/{other}/done") and time.monotonic() < until:
            time.sleep(0.005)
        lines = open("shared.txt").read().split()
        print(lines[0], lines.count("0"), lines.count("1"), sorted(os.listdir("out")))
    """)
    both = [
        subprocess.Popen(
            command, cwd=desk.work, env=desk.environment({"RANK": str(rank)}), stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    assert [process.communicate(timeout=300)[0].strip() for process in both] == ["mine 200 200 ['0', '1']"] * 2
    assert desk.kept() == {"shared.txt": "mine\n"}


def test_caches_temporary_files_and_devices_pass(desk: Desk) -> None:
    cache = desk.work / "downloads" / "hub"
    seen = desk.run(
        """
        import os, tempfile
        from pathlib import Path
        (Path.home() / ".cache" / "huggingface").mkdir(parents=True)
        (Path.home() / ".cache" / "huggingface" / "token").write_text("t")
        (Path.home() / "notes.txt").write_text("n")
        Path(os.environ["HF_HOME"], "hub").mkdir(parents=True)
        Path(os.environ["HF_HOME"], "hub", "blob").write_text("b")
        Path(os.environ["HF_HOME"], "checkpoint").write_text("no cache")
        with tempfile.NamedTemporaryFile() as file:
            assert os.path.exists(file.name)
        with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
            Path(folder, "x").write_text("x")
        with open(os.devnull, "w") as file:
            print("nothing", file=file)
        print((Path.home() / "notes.txt").read_text())
        """,
        HF_HOME=str(cache.parent),
    )
    assert seen == "n"
    assert (desk.home / ".cache" / "huggingface" / "token").read_text() == "t"
    assert (cache / "blob").read_text() == "b"
    assert not (cache.parent / "checkpoint").exists()
    assert not (desk.home / "notes.txt").exists()
    assert desk.written == {
        str(desk.home / ".cache" / "huggingface"): False,
        str(desk.home / "notes.txt"): True,
        str(cache): False,
        str(cache.parent / "checkpoint"): True,
    }


def test_running_in_tmpdir(desk: Desk) -> None:  # a short name: the folder becomes part of a socket's path
    desk.give(a_txt="mine")
    seen = desk.run(
        """
        import multiprocessing, tempfile
        from multiprocessing.connection import Client, Listener
        open("a.txt", "w").write("theirs")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("x")
        listener = Listener(family="AF_UNIX")
        Client(listener.address).close()
        listener.close()
        print(open("a.txt").read())
        """,
        TMPDIR=str(desk.work),
    )
    assert seen == "theirs"
    assert desk.kept() == {"a.txt": "mine"}


def test_a_cache_variable_does_not_open_the_working_directory(desk: Desk) -> None:
    desk.give(a_txt="mine")
    desk.run("open('a.txt', 'w').write('theirs')", TORCH_HOME=str(desk.work), XDG_CACHE_HOME=str(desk.work.parent))
    assert desk.kept() == {"a.txt": "mine"}
