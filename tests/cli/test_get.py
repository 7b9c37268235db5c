from __future__ import annotations

import json

import pytest

from lfbo_aot.cli.main import main

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
ARCH = ["--arch", "sm90/NVIDIA H200"]


@pytest.fixture
def get(tmp_path, write_database, make_entry, capsys):
    path = write_database(tmp_path / "tuned", {KERNEL: {BUCKET: make_entry(8)}})

    def run(*words):
        status = main(["get", *words, "--database", str(path)])
        out, err = capsys.readouterr()
        return status, out, err

    run.path = path
    return run


def test_json_of_an_entry(get, make_entry):
    status, out, err = get("norm", "m=100", "n=2048", "dtype=bfloat16", *ARCH, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "kernel": KERNEL,
        "shape": {"m": 100, "n": 2048, "dtype": "bfloat16"},
        "arch": "sm90/NVIDIA H200",
        "status": "exact",
        "fresh": None,
        "config": dict(make_entry(8).config),
        "default": False,
        "pinned": False,
        "latency_us": 25.6,
        "default_us": 34.0,
        "layer": str(get.path),
        "reasons": ["not checked: source, settings, versions"],
        "key": f"NVIDIA H200|{BUCKET}",
    }


def test_json_of_a_default(get):
    status, out, err = get(KERNEL, "m=300", "n=2048", "dtype=bfloat16", *ARCH, "--json")
    found = json.loads(out)
    assert (status, err) == (1, "")
    assert (found["status"], found["config"], found["latency_us"]) == ("default", {}, None)
    assert (found["layer"], found["default_us"], found["fresh"]) == (None, None, None)
    assert found["key"] == "NVIDIA H200|m=300|n=2048|dtype=bfloat16"
    assert f"nearest held: sm90/NVIDIA H200|{BUCKET}" in found["reasons"][0]


def test_text(get):
    status, out, err = get("norm", "m=100", "n=2048", "dtype=bfloat16", *ARCH)
    assert (status, err) == (0, "")
    assert out.splitlines()[:5] == [
        f"{KERNEL}  m=100 n=2048 dtype=bfloat16  sm90/NVIDIA H200",
        "status   exact, versions not checked",
        f"key      NVIDIA H200|{BUCKET}",
        f"layer    {get.path}",
        "latency  25.60 us, default 34.00 us, 1.33x",
    ]
    assert get("norm", "m=1", "n=2048", "dtype=bfloat16", *ARCH)[1].splitlines()[1] == (
        "status   default: the caller takes Helion's own default config"
    )


def test_a_bare_arch_and_a_policy(get):
    words = ("norm", "m=100", "n=2048", "dtype=bfloat16", "--arch", "sm90", "--json")
    assert json.loads(get(*words)[1])["status"] == "same_arch"
    status, out, _ = get(*words, "--policy", "exact")
    assert (status, json.loads(out)["status"]) == (1, "default")


def test_shapes_may_stand_after_options(get):
    assert get("norm", "m=100", *ARCH, "n=2048", "dtype=bfloat16")[0] == 0


def test_damage_is_a_reason(get):
    shard = get.path / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"15.6"))
    status, out, _ = get("norm", "m=100", "n=2048", "dtype=bfloat16", *ARCH)
    assert status == 1
    assert f"reason   damaged: {shard}:1: checksum" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nrom", "m=1", *ARCH], "unknown kernel 'nrom'. Did you mean 'norm'?"),
        (["norm", "mm=1", *ARCH], "unknown dim of kernel 'mykern.norm': 'mm'. Did you mean 'm'?"),
        (["norm", "m=1", *ARCH], "kernel 'mykern.norm': dim 'n': missing from the shape"),
        (["norm", "m=x", "n=1", "dtype=float16", *ARCH], "dim 'm': 'x' is str; the dim takes int"),
        (["norm", "m=1", "n=true", "dtype=float16", *ARCH], "dim 'n': True is bool"),
        (["norm", "m=1", "n=1", "dtype=bf16", *ARCH], "Use 'bfloat16'."),
        (["norm", "m=1..4", *ARCH], "m=1..4 is an interval; give one value"),
        (["norm", "m=1", "m=2", *ARCH], "dim 'm' is given twice"),
        (["norm", "m", *ARCH], "'m' isn't written dim=value"),
        (["norm", "m=1"], "--arch is missing; it is written like 'sm90/NVIDIA H200' or sm90. The "),
        (["norm", "m=1", "--arch", "!"], "unknown arch '!'"),
        (["norm", "m=1", "--archh", "sm90"], "unknown argument '--archh'. Did you mean '--arch'"),
        (["norm", "--policy", "exat"], "invalid choice: 'exat'"),
        ([], "the following arguments are required: kernel"),
        (["norm", "m=1", *ARCH, "--database", "/no/such"], "no such folder: /no/such"),
    ],
)
def test_wrong_use(get, words, says, capsys):
    if "--database" in words:
        status = main(["get", *words])
        out, err = capsys.readouterr()
    else:
        status, out, err = get(*words)
    assert (status, out) == (2, "")
    assert err.startswith("lfbo-aot: error: ")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gte"], "unknown command 'gte'. Did you mean 'get'"),
        (["--jsn"], "unrecognized arguments: --jsn"),
        ([], ""),
    ],
)
def test_wrong_commands(words, says, capsys):
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("tune", "list", "get", "explain", "coverage", "pin", "verify", "doctor"):
        assert f"    {command} " in out
    assert main(["get", "--help"]) == 0
    assert "0 an entry is served; 1 the default is; 2" in " ".join(capsys.readouterr().out.split())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lfbo-aot 0.")


def test_a_wrong_setting(isolated, capsys):
    isolated.setenv("LFBO_AOT_POLICY", "exat")
    assert main(["get", "norm", "m=1", "--arch", "sm90"]) == 2
    assert capsys.readouterr().err.startswith("lfbo-aot: error: LFBO_AOT_POLICY='exat' is not")
