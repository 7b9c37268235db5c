from __future__ import annotations

import json

import pytest

import lfbo_aot
from lfbo_aot.cli.main import main
from lfbo_aot.database import store
from lfbo_aot.database.database import Database
from lfbo_aot.database.store import user_database
from lfbo_aot.database.verify import verify
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import state

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
SMALL, LARGE = "m=1..16|n=2048|dtype=bfloat16", "m=17..256|n=2048|dtype=bfloat16"
WORDS = ["norm", "m=8", "n=2048", "dtype=bfloat16"]
SHAPE = {"m": 8, "n": 2048, "dtype": "bfloat16"}
H200, H100 = DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")
ARCH = ["--arch", str(H200)]


@pytest.fixture
def shipped(tmp_path, write_database, make_entry, isolated):
    """The database that ships: it can't be laid over the user's."""
    path = write_database(
        tmp_path / "shipped", {KERNEL: {SMALL: make_entry(1), LARGE: make_entry(2)}}
    )
    isolated.setattr(store, "built_in_database", lambda: path)
    return path


@pytest.fixture
def pin(capsys):
    """Runs the command; gives (exit status, stdout, stderr)."""

    def run(*words, arch=ARCH):
        status = main(["pin", *WORDS, *arch, *words])
        state.refresh()
        return (status, *capsys.readouterr())

    return run


def answer(shape=SHAPE):
    return lfbo_aot.resolve(KERNEL, shape, str(H200))


def test_a_pinned_entry_outlives_a_better_one(shipped, pin, write_database, make_entry, tmp_path):
    status, out, err = pin()
    assert (status, err) == (0, "")
    assert out == f"pinned  {KERNEL}  sm90/NVIDIA H200|{SMALL}  in {user_database()}\n"
    assert verify(user_database()) == ()
    over = write_database(tmp_path / "over", {KERNEL: {SMALL: make_entry(8, latency_us=1.0)}})
    lfbo_aot.use_database(over)
    found = answer()
    assert (found.config["num_warps"], found.layer, found.entry.pinned) == (1, "user", True)
    assert answer({**SHAPE, "m": 100}).layer == "built-in"
    assert Database(shipped).shard(KERNEL, "sm90").entry(f"NVIDIA H200|{SMALL}").pinned is False


def test_off_leaves_no_trace(shipped, pin):
    """A copy that stayed would hide what a later release ships."""
    pin()
    status, out, err = pin("--off")
    assert (status, err) == (0, "")
    assert out == f"unpinned  {KERNEL}  sm90/NVIDIA H200|{SMALL}  in {user_database()}\n"
    assert answer().layer == "built-in"
    assert Database(user_database()).kernels() == ()


def test_off_keeps_the_users_own_entry(shipped, pin, write_database, make_entry):
    write_database(user_database(), {KERNEL: {SMALL: make_entry(4), LARGE: make_entry(8)}})
    assert pin()[0] == 0
    assert answer().entry.pinned
    assert pin("--off")[0] == 0
    shard = Database(user_database()).shard(KERNEL, "sm90")
    assert [shard.entry(key).config["num_warps"] for key in shard.keys] == [4, 8]
    assert [shard.entry(key).pinned for key in shard.keys] == [False, False]
    assert verify(user_database()) == ()


def test_off_takes_one_copy_of_several(shipped, pin, capsys):
    pin()
    assert main(["pin", "norm", "m=100", *WORDS[2:], *ARCH]) == 0
    state.refresh()
    capsys.readouterr()
    assert pin("--off")[0] == 0
    assert Database(user_database()).shard(KERNEL, "sm90").keys == (f"NVIDIA H200|{LARGE}",)
    assert answer({**SHAPE, "m": 100}).entry.pinned
    assert verify(user_database()) == ()


def test_twice_is_once(shipped, pin):
    pin()
    before = (user_database() / "sm90" / f"{KERNEL}.jsonl").read_bytes()
    assert pin()[0] == 0
    assert (user_database() / "sm90" / f"{KERNEL}.jsonl").read_bytes() == before


def test_json_and_another_database(shipped, pin, tmp_path):
    status, out, _ = pin("--into", str(tmp_path / "mine"), "--json")
    assert status == 0
    assert json.loads(out) == {
        "kernel": KERNEL,
        "shape": SHAPE,
        "arch": str(H200),
        "into": str(tmp_path / "mine"),
        "pinned": [f"NVIDIA H200|{SMALL}"],
    }
    assert not user_database().exists()
    lfbo_aot.use_database(tmp_path / "mine")
    assert answer().entry.pinned
    status, out, _ = pin("--into", str(tmp_path / "mine"), "--off", "--json")
    assert json.loads(out)["unpinned"] == [f"NVIDIA H200|{SMALL}"]
    assert not answer().entry.pinned


def test_a_database_that_no_look_up_reads(shipped, pin, tmp_path):
    _, out, _ = pin("--into", str(tmp_path / "mine"))
    assert out.splitlines()[1] == (
        f"no look-up reads {tmp_path / 'mine'} yet: name it in LFBO_AOT_PATH"
    )


def test_of_any_device_of_an_arch_the_best_known_is_pinned(shipped, pin):
    assert pin(arch=["--arch", "sm90"])[0] == 0
    assert answer().entry.pinned
    assert pin("--off", arch=["--arch", "sm90"])[0] == 0
    assert not answer().entry.pinned


def test_a_pin_for_another_device_would_not_hold(shipped, pin):
    status, out, err = pin(arch=["--arch", str(H100)])
    assert (status, out) == (2, "")
    assert f"what answers for {H100} was measured on {H200}, and a pin holds on" in err
    assert f"--arch '{H200}'" in err
    assert not user_database().exists()


def test_nothing_to_pin(shipped, pin):
    status, out, err = pin(arch=["--arch", "sm80"])
    assert (status, out) == (1, "")
    assert err.startswith("lfbo-aot: error: nothing to pin: miss: nothing is held for sm80/")


def test_nothing_to_unpin(shipped, pin):
    status, out, err = pin("--off")
    assert (status, out) == (1, "")
    assert err == (
        "lfbo-aot: error: nothing is pinned for sm90/NVIDIA H200|m=8|n=2048|dtype=bfloat16 "
        f"in {user_database()}\n"
    )


def test_another_entry_is_not_written_over(shipped, pin, write_database, make_entry):
    """The user's is stale, so the shipped one answers; pinning it must not cost the user's."""
    write_database(user_database(), {KERNEL: {SMALL: make_entry(4, status="imported")}})
    shard = user_database() / "sm90" / f"{KERNEL}.jsonl"
    before = shard.read_bytes()
    status, _, err = pin()
    assert status == 1
    assert err.startswith(f"lfbo-aot: error: {shard}: holds another entry for NVIDIA H200|{SMALL}")
    assert "with --into" in err
    assert shard.read_bytes() == before


def test_a_damaged_database_is_not_written_to(shipped, pin, write_database, make_entry):
    write_database(user_database(), {KERNEL: {LARGE: make_entry(4)}})
    shard = user_database() / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes()[:-20] + b"\n")
    before = shard.read_bytes()
    status, _, err = pin()
    assert status == 1
    assert err.startswith(f"lfbo-aot: error: {shard}:1: ")
    assert shard.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--offf"], "unknown argument '--offf'. Did you mean '--off' or"),
        (["--config", "{}"], "unknown argument '--config'"),
        (["k=1"], "unknown dim of kernel 'mykern.norm': 'k'"),
    ],
)
def test_wrong_use(shipped, pin, words, says):
    status, out, err = pin(*words)
    assert (status, out) == (2, "")
    assert says in err
    assert not user_database().exists()


def test_into_a_file(shipped, pin, tmp_path):
    (tmp_path / "file").write_text("mine")
    status, _, err = pin("--into", str(tmp_path / "file"))
    assert (status, err) == (
        2,
        f"lfbo-aot: error: --into {tmp_path / 'file'}: a file, not a folder\n",
    )


def test_help(capsys):
    assert main(["pin", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "example: lfbo-aot pin" in out
    assert "Only what was measured can be pinned" in out


def test_off_deletes_no_line_of_a_folder_of_ones_own(
    shipped, pin, tmp_path, write_database, make_entry
):
    """Another folder's equal entry, or the shipped one, is no reason: the line was there before."""
    mine = write_database(tmp_path / "mine", {KERNEL: {SMALL: make_entry(1)}})
    files = {path: path.read_bytes() for path in mine.rglob("*.json*")}
    assert pin("--into", str(mine))[0] == 0
    assert pin("--into", str(mine), "--off")[0] == 0
    assert {path: path.read_bytes() for path in mine.rglob("*.json*")} == files


def test_off_keeps_the_users_line_that_a_folder_named_for_a_while_has_too(
    shipped, pin, tmp_path, write_database, make_entry
):
    for path in (user_database(), tmp_path / "for-a-while"):
        write_database(path, {KERNEL: {SMALL: make_entry(4)}})
    lfbo_aot.use_database(tmp_path / "for-a-while")
    before = (user_database() / "sm90" / f"{KERNEL}.jsonl").read_bytes()
    assert pin()[0] == 0
    assert pin("--off")[0] == 0
    assert (user_database() / "sm90" / f"{KERNEL}.jsonl").read_bytes() == before


@pytest.mark.parametrize("own", [1, 4])
def test_off_leaves_a_damaged_shard_as_it_is(shipped, pin, write_database, make_entry, own):
    """Whether the line would be taken out or only lose its mark."""
    key = (H100, LARGE)
    write_database(user_database(), {KERNEL: {SMALL: make_entry(own), key: make_entry(8)}})
    assert pin()[0] == 0
    shard = user_database() / "sm90" / f"{KERNEL}.jsonl"
    damaged, pinned = shard.read_bytes().splitlines()
    shard.write_bytes(damaged[:-20] + b"\n" + pinned + b"\n")
    before = shard.read_bytes()
    state.refresh()
    status, out, err = pin("--off")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith(f"lfbo-aot: error: {shard}:1: the line is cut")
    assert shard.read_bytes() == before


def test_list_and_get_mark_what_is_pinned(shipped, pin, capsys):
    pin()
    assert main(["list", "norm", "m=8"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.rpartition("x  ")[2] for row in rows] == ["user (pinned)", "built-in"]
    assert main(["list", "norm", "m=8", "--json"]) == 0
    assert [row["pinned"] for row in json.loads(capsys.readouterr().out)] == [True, False]
    assert main(["get", *WORDS, *ARCH]) == 0
    assert "status   exact, versions not checked, pinned\n" in capsys.readouterr().out
    assert main(["get", *WORDS, *ARCH, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pinned"] is True
