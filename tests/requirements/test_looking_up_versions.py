"""What must hold of look-ups, L10 to L12: versions, what `explain` lists, copied databases."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest

import lfbo_aot
from lfbo_aot import Environment
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.versions import loaded_versions

from .conftest import KERNEL
from .conftest import checks

pytestmark = pytest.mark.usefixtures("isolated")

H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}
WORDS = [KERNEL, "m=100", "n=2048", "dtype=bfloat16"]
SOURCE, SETTINGS = "sha256:50ce", {"static_shapes": True, "fast_math": False}


def resolve(asked=H200, shape=SHAPE, **more):
    return lfbo_aot.resolve(KERNEL, shape, asked, **more)


# L10, L11


def test_l10_an_upgrade_makes_every_entry_stale_and_none_disappear(serve, make_entry, caplog):
    sizes = {f"m={m}..{m + 9}": m for m in range(1, 200, 10)}
    rest = "|n=2048|dtype=bfloat16"
    serve({f"{size}{rest}": make_entry(m, resources={}) for size, m in sizes.items()})
    upgraded = {"helion": "2.0.0", "triton": "3.6.0", "torch": "2.12.1", "runtime": "13.0"}
    told = ("helion: entry=1.5.0 here=2.0.0", "torch: entry=2.11.0 here=2.12.1")
    for m in sizes.values():
        found = resolve(shape={**SHAPE, "m": m}, environment=Environment(versions=upgraded))
        assert (found.status, found.fresh, found.config["num_warps"]) == ("exact", False, m)
        assert found.entry.versions["torch"] == "2.11.0"
        assert found.reasons == (*told, "not checked: source, settings")
    assert [record.getMessage() for record in caplog.records] == [
        f"{KERNEL}: stale: {told[0]}; {told[1]}; not checked: source, settings"
    ]
    strict = resolve(environment=Environment(versions=upgraded), policy="exact")
    assert strict.status == "default"
    assert strict.reasons[0].startswith("policy: exact doesn't serve stale entries; ")
    assert all(text in strict.reasons[0] for text in told)


BASES = [
    ("2.11.0", "2.11.0+cu130", True),
    ("2.11.0", "2.11.0a0+git1234", True),
    ("2.11", "2.11.0", True),
    ("2.11.0.post1", "2.11.0rc2", True),
    ("2.9.0", "2.11.0", False),
    ("2.11.0", "2.11.1", False),
    ("2.1.10", "2.11.0", False),
    ("1!2.11.0", "2.11.0", False),
]


@pytest.mark.parametrize("versions", BASES, ids=str)
def test_l11_base_versions_of_the_loaded_libraries_are_compared(
    serve, make_entry, monkeypatch, versions
):
    stored, here, same = versions
    # Whatever is installed: what is loaded counts.
    version = SimpleNamespace(hip=None, cuda="13.0")
    torch = SimpleNamespace(__version__=here, version=version)
    with monkeypatch.context() as loaded:
        loaded.setitem(sys.modules, "torch", torch)
        loaded_here = {name: loaded_versions()[name] for name in ("torch", "runtime")}
    serve({BUCKET: make_entry(versions={"torch": stored, "runtime": "13.0"})})
    found = resolve(environment=Environment(versions=loaded_here))
    assert found.fresh is same
    base = here.partition("+")[0].partition("a")[0].partition("r")[0]
    told = f"torch: entry={stored} here={base}"
    assert (told in found.reasons) is not same


# L12


def test_l12_explain_lists_every_field_that_differs(serve, command, make_entry, monkeypatch):
    layer = serve(
        {
            BUCKET: make_entry(
                source="sha256:0ld",
                settings={"static_shapes": False, "fast_math": True},
                versions={"helion": "1.4.0", "triton": "3.5.0", "torch": "2.11.0", "runtime": "1"},
                resources={"shared": 300000, "regs": 255, "threads": 2048},
            )
        }
    )
    here = {"helion": "1.5.0", "triton": "3.6.0", "torch": "2.11.0", "runtime": "13.0"}
    given = Environment(source=SOURCE, settings=SETTINGS, versions=here)
    from lfbo_aot.cli import explain

    spec = SimpleNamespace(kernel_id=KERNEL)
    monkeypatch.setattr(explain, "load_specs", lambda *_: [spec])
    monkeypatch.setattr(explain, "environment_of", lambda _: given)
    status, told = command("explain", *WORDS, "--arch", H100, "--environment")
    _, compared = checks(told, layer)
    assert status == 1
    assert {name: row[:2] for name, row in compared.items() if row[2] == "differs"} == {
        "device": (str(H200), str(H100)),
        "source": ("sha256:0ld", SOURCE),
        "settings.static_shapes": (False, True),
        "settings.fast_math": (True, False),
        "helion": ("1.4.0", "1.5.0"),
        "triton": ("3.5.0", "3.6.0"),
        "runtime": ("1", "13.0"),
        "shared": (300000, 232448),
        "threads": (2048, 1024),
        "registers": (522240, 65536),
    }
    assert compared["torch"] == ("2.11.0", "2.11.0", "equal")


ASK = """
import json, sys
import lfbo_aot
lfbo_aot.use_database(sys.argv[1])
found = []
for m in (1, 16, 17, 100, 256, 257, 4096, 4097):
    for arch in ("sm90/NVIDIA H200", "sm90/NVIDIA H100", "sm90", "sm100"):
        r = lfbo_aot.resolve("norm", (m, 2048, "bfloat16"), arch)
        layer = r.layer == sys.argv[1]
        found.append([m, arch, r.status, r.key, dict(r.config), layer, r.reasons])
print(json.dumps(found))
"""


def test_l12_a_copied_database_gives_the_same_hits(serve, fresh, make_entry, tmp_path):
    layer = serve({BUCKET: make_entry(8), (H100, "m=1..16|n=2048|dtype=bfloat16"): make_entry(2)})
    copy = tmp_path / "elsewhere" / "under another name"
    shutil.copytree(layer, copy)
    here, _ = fresh(ASK, layer)
    there, _ = fresh(ASK, copy)
    assert json.loads(json.dumps(there).replace(str(copy), str(layer))) == here
    assert {row[2] for row in here} == {"exact", "same_arch", "default"}
    assert sum(row[5] for row in here) == 15
