"""What must hold of look-ups, L1 and L3 to L6: what is served, what isn't, and what is said."""

from __future__ import annotations

import pytest

import lfbo_aot
from lfbo_aot import Environment
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import known
from lfbo_aot.registry.limits import Limits

from .conftest import KERNEL
from .conftest import checks

pytestmark = pytest.mark.usefixtures("isolated")

H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}
WORDS = [KERNEL, "m=100", "n=2048", "dtype=bfloat16"]


def resolve(asked=H200, shape=SHAPE, **more):
    return lfbo_aot.resolve(KERNEL, shape, asked, **more)


def warps(found):
    return found.config.get("num_warps")


# L1


@pytest.mark.parametrize(
    ("measured_on", "asked"),
    [
        ("sm86/NVIDIA A40", "sm86/NVIDIA A10"),
        ("sm89/NVIDIA L40S", "sm89/NVIDIA L4"),
        ("sm120/NVIDIA GeForce RTX 5090", "sm120/NVIDIA GeForce RTX 5080"),
        ("sm120/NVIDIA GeForce RTX 5090", "sm120/NVIDIA GeForce RTX 5090"),
    ],
)
def test_l1_147456_bytes_of_shared_memory_are_refused_where_there_are_101376(
    serve, command, make_entry, measured_on, asked
):
    resources = {"shared": 147456, "regs": 64, "spills": 0, "threads": 128}
    layer = serve({(DeviceId.parse(measured_on), BUCKET): make_entry(resources=resources)})
    found = resolve(asked, policy="any")
    reason = f"resources: shared entry=147456 limit=101376 of {asked}"
    assert (found.status, found.config, found.entry) == ("default", {}, None)
    assert found.reasons[0].startswith(reason)
    status, told = command("explain", *WORDS, "--arch", asked)
    row, compared = checks(told, layer)
    assert (status, row["outcome"], row["why"]) == (1, "refused", [reason])
    assert compared["shared"] == (147456, 101376, "differs")


@pytest.mark.parametrize(
    ("resources", "numbers"),
    [
        ({"shared": 101377, "threads": 1024, "regs": 64}, "shared entry=101377 limit=101376"),
        ({"shared": 101376, "threads": 1025, "regs": 8}, "threads entry=1025 limit=1024"),
        ({"shared": 101376, "threads": 1024, "regs": 65}, "registers entry=66560 limit=65536"),
        ({"shared": 101376, "threads": 1024, "regs": 64}, None),
    ],
)
def test_l1_each_resource_is_served_up_to_the_limit_and_not_beyond_it(
    serve, make_entry, resources, numbers
):
    unlisted = DeviceId("sm86", "NVIDIA A99 (7 SMs, 8 GiB)")
    serve({(unlisted, BUCKET): make_entry(8, resources=resources)})
    found = resolve(unlisted)
    if numbers is None:
        assert (found.status, warps(found)) == ("exact", 8)
    else:
        assert found.status == "default"
        assert found.reasons[0].startswith(f"resources: {numbers} of {unlisted}")
    # What the driver says of the device counts before what the table says of its arch.
    assert resolve(unlisted, environment=Environment(limits=Limits(1, 1, 1))).status == "default"
    more = Environment(limits=Limits(1 << 20, 2048, 1 << 20))
    assert resolve(unlisted, environment=more).status == "exact"


def test_l1_an_entry_that_does_not_fit_gives_way_to_one_that_does(serve, make_entry):
    serve({BUCKET: make_entry(2)})
    serve({BUCKET: make_entry(8, resources={"shared": 232449})})
    found = resolve()
    assert (found.status, warps(found)) == ("exact", 2)
    assert any("shared entry=232449 limit=232448" in reason for reason in found.reasons)


# L3


def test_l3_it_is_said_once_for_each_key(serve, make_entry, caplog):
    serve({BUCKET: make_entry()})
    for m in (300, 300, 400, 300):
        for policy in (None, "any"):
            resolve(shape={**SHAPE, "m": m}, policy=policy)
            resolve(H100, shape={**SHAPE, "m": m}, policy=policy)
    said = [record.getMessage() for record in caplog.records]
    keys = [text.partition("nothing is held for ")[2].partition("|n=")[0] for text in said]
    names = (H200, H100)
    assert keys == [f"{device}|m={m}" for m in (300, 400) for device in names]


# L4

REPORTED = {
    ("sm90", "NVIDIA H100"): "NVIDIA H100 80GB HBM3",
    ("sm90", "NVIDIA H100 80GB HBM3"): "NVIDIA H100 80GB HBM3",
    ("sm90", "NVIDIA H100 PCIe"): "NVIDIA H100 PCIe",
    ("sm90", "NVIDIA H100 NVL"): "NVIDIA H100 NVL",
    ("sm90", "NVIDIA H200"): "NVIDIA H200",
    ("sm90", "NVIDIA H200 NVL"): "NVIDIA H200 NVL",
    ("sm86", "NVIDIA A40"): "NVIDIA A40",
    ("sm86", "A40"): "NVIDIA A40",
    ("sm86", "NVIDIA RTX A4000"): "NVIDIA RTX A4000",
    ("sm100", "NVIDIA B200"): "NVIDIA B200",
    ("gfx942:sramecc+:xnack-", "AMD Instinct MI300X"): "AMD Instinct MI300X",
    ("gfx942", "AMD Instinct MI300X VF"): "AMD Instinct MI300X",
    ("gfx90a:sramecc+:xnack-", "AMD Instinct MI210"): "AMD Instinct MI210",
}


@pytest.mark.parametrize(("arch", "reported"), REPORTED, ids=str)
def test_l4_a_name_that_a_driver_reports_finds_the_entries_of_that_device_alone(
    serve, make_entry, arch, reported
):
    bare = arch.partition(":")[0]
    own = DeviceId(bare, REPORTED[arch, reported])
    assert identify(arch, reported) == own
    assert known(own) is not None
    rest = {DeviceId(*key[:1], name) for key, name in REPORTED.items() if ":" not in key[0]}
    held = {(d, BUCKET): make_entry(2) for d in rest - {own} if d.arch == bare}
    serve({**held, (own, BUCKET): make_entry(8)})
    found = resolve(f"{arch}/{reported}", policy="exact")
    assert (found.status, warps(found)) == ("exact", 8)
    assert found.key == f"{own.name}|{BUCKET}"


@pytest.mark.parametrize(
    ("arch", "reported"),
    [
        ("sm86", "NVIDIA RTX A40"),
        ("sm86", "NVIDIA A400"),
        ("sm86", "NVIDIA RTX A4000 Laptop GPU"),
        ("sm90", "NVIDIA H200 NV"),
        ("sm90", "nvidia h200"),
        ("sm90", "NVIDIA H200 NVL MIG 1g.18gb"),
        ("sm90", "H"),
    ],
)
def test_l4_no_part_of_a_name_is_taken_for_it(serve, make_entry, arch, reported):
    names = {name for (_, name) in REPORTED} | set(REPORTED.values())
    serve({(DeviceId(arch, name), BUCKET): make_entry(8) for name in names if name != "A40"})
    found = resolve(f"{arch}/{reported}", policy="exact")
    assert (found.status, found.config) == ("default", {})
    assert identify(arch, reported) == DeviceId(arch, reported)
    assert known(identify(arch, reported)) is None


# L5, L6


@pytest.mark.parametrize("asked", [H100, DeviceId("sm90", "NVIDIA H100 PCIe"), "sm90"], ids=str)
@pytest.mark.parametrize("policy", ["exact", "compatible", "any"])
def test_l5_what_another_device_of_the_arch_measured_is_never_exact(
    serve, command, make_entry, asked, policy
):
    layer = serve({BUCKET: make_entry(8)})
    found = resolve(asked, policy=policy)
    allowed = policy != "exact"
    expected = ("same_arch", 8) if allowed else ("default", None)
    assert (found.status, warps(found)) == expected
    assert any(f"measured on {H200}" in reason for reason in found.reasons) is allowed
    status, told = command("explain", *WORDS, "--arch", asked, "--policy", policy)
    row, compared = checks(told, layer)
    assert (status, told["status"], row["status"]) == (int(not allowed), found.status, "same_arch")
    verdict = "equal" if allowed else "differs"
    assert compared["policy"] == ("same_arch", policy, verdict)
    assert resolve("sm100/NVIDIA B200", policy="any").status == "default"


def test_l5_the_shipped_entry_on_an_h100_is_same_arch_with_its_resources_checked(command):
    words = ["layer_norm", "m=4096", "n=5120", "dtype=bfloat16", "--arch", H100]
    status, told = command("explain", *words)
    row, compared = checks(told, "built-in")
    assert (status, told["status"], told["layer"]) == (0, "same_arch", "built-in")
    assert told["key"] == "NVIDIA H200|m=1025..4096|n=5120|dtype=bfloat16"
    assert compared["device"] == (str(H200), str(H100), "differs")
    needs = lfbo_aot.resolve("layer_norm", (4096, 5120, "bfloat16"), H200).entry.resources
    registers = needs["regs"] * needs["threads"]
    assert compared["shared"] == (needs["shared"], 232448, "equal")
    assert compared["threads"] == (needs["threads"], 1024, "equal")
    assert compared["registers"] == (registers, 65536, "equal")
    assert row["outcome"] == "served"


@pytest.mark.parametrize("arch", ["sm121", "gfx942:sramecc+:xnack-"])
def test_l5_an_arch_that_nothing_was_measured_on_gets_the_default_and_why(command, arch):
    words = ["layer_norm", "m=4096", "n=5120", "dtype=bfloat16", "--arch", arch]
    status, told = command("explain", *words)
    bare = arch.partition(":")[0]
    assert (status, told["status"], told["config"], told["arch"]) == (1, "default", {}, bare)
    (reason,) = told["reasons"]
    assert reason.startswith(f"miss: nothing is held for {bare}/*|m=4096|n=5120|dtype=bfloat16;")
    assert "nearest held: sm90/NVIDIA H200|m=1025..4096|n=5120|dtype=bfloat16;" in reason


@pytest.mark.parametrize("policy", ["compatible", "any"])
@pytest.mark.parametrize("m", [0, 1, 16, 257, 258, 4096, 1 << 40])
def test_l6_a_shape_beyond_every_bucket_gets_the_default(serve, make_entry, m, policy):
    serve({BUCKET: make_entry(8), (H100, BUCKET): make_entry(4)})
    found = resolve(shape={**SHAPE, "m": m}, policy=policy)
    assert (found.status, found.config, found.entry) == ("default", {}, None)
    for end in (17, 256):
        assert warps(resolve(shape={**SHAPE, "m": end}, policy=policy)) == 8
