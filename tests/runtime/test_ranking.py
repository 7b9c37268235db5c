"""Which of several entries answers: devices of one arch, statuses, pins, layers."""

from __future__ import annotations

import pytest

import lfbo_aot
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")
STRANGER = DeviceId("sm90", "NVIDIA H300")
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
LARGER = "m=1..4096|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}
UNCHECKED = "not checked: source, settings, versions"


@pytest.fixture
def serve(tmp_path, write_database):
    """Lay a new database over the rest, and its path."""
    count = iter(range(100))

    def lay(held):
        path = write_database(tmp_path / f"tuned{next(count)}", {KERNEL: held})
        lfbo_aot.use_database(path)
        return path

    return lay


def warps(found):
    return found.config.get("num_warps")


@pytest.mark.parametrize("asked", [H100, PCIE, STRANGER], ids=str)
@pytest.mark.parametrize("policy", ["exact", "compatible", "any"])
def test_l5_another_device_of_the_arch_is_same_arch_where_the_policy_allows_it(
    serve, make_entry, asked, policy
):
    serve({BUCKET: make_entry(8)})
    found = resolve(KERNEL, SHAPE, asked, policy=policy)
    if policy == "exact":
        assert (found.status, found.config) == ("default", {})
        assert found.reasons[0].startswith("policy: exact doesn't serve same_arch")
    else:
        assert (found.status, warps(found)) == ("same_arch", 8)
        assert found.reasons == (f"same_arch: measured on {H200}", UNCHECKED)
        assert found.key == f"NVIDIA H200|{BUCKET}"


def test_another_arch_never_answers(serve, make_entry):
    serve({BUCKET: make_entry(8)})
    for asked in ("sm100/NVIDIA B200", "sm100", "sm121", "gfx942", "sm80/NVIDIA H200"):
        assert resolve(KERNEL, SHAPE, asked, policy="any").status == "default"


def test_of_several_devices_the_most_alike_answers(serve, make_entry):
    serve({(H100, BUCKET): make_entry(1), (PCIE, BUCKET): make_entry(2)})
    assert warps(resolve(KERNEL, SHAPE, H200)) == 1  # as many multiprocessors; the PCIe has 114
    serve({(PCIE, BUCKET): make_entry(4)})
    assert warps(resolve(KERNEL, SHAPE, H200)) == 4  # a layer comes before likeness


def test_an_exact_answer_of_a_lower_layer_comes_before_another_devices(serve, make_entry):
    serve({BUCKET: make_entry(1)})
    top = serve({(H100, BUCKET): make_entry(2)})
    found = resolve(KERNEL, SHAPE, H200)
    assert (found.status, warps(found)) == ("exact", 1)
    key = f"{H100.name}|{BUCKET}"
    assert f"status: same_arch comes after exact ({top}: {key})" in found.reasons


@pytest.mark.parametrize("status", ["imported", "transferred"])
def test_an_unconfirmed_entry_of_the_device_comes_after_a_measured_one_of_another(
    serve, make_entry, status
):
    serve({BUCKET: make_entry(1, status=status), (H100, BUCKET): make_entry(2)})
    found = resolve(KERNEL, SHAPE, H200, policy="any")
    assert (found.status, warps(found)) == ("same_arch", 2)
    assert resolve(KERNEL, SHAPE, H100, policy="any").status == "exact"


def test_a_stale_exact_entry_comes_before_a_fresh_one_of_another_device(serve, make_entry):
    serve(
        {
            BUCKET: make_entry(1, versions={"helion": "1.4.0"}),
            (H100, BUCKET): make_entry(2, versions={"helion": "1.5.0"}),
        }
    )
    here = Environment(versions={"helion": "1.5.0"})
    found = resolve(KERNEL, SHAPE, H200, environment=here)
    assert (found.status, found.fresh, warps(found)) == ("exact", False, 1)
    strict = resolve(KERNEL, SHAPE, H200, environment=here, policy="exact")
    assert strict.status == "default"


def test_an_outdated_entry_of_the_device_does_not_hide_a_valid_one_of_another(serve, make_entry):
    serve({BUCKET: make_entry(1, source="sha256:old"), (H100, BUCKET): make_entry(2)})
    found = resolve(KERNEL, SHAPE, H200, environment=Environment(source="sha256:50ce"))
    assert (found.status, warps(found)) == ("same_arch", 2)
    assert any(r.startswith("source: entry=sha256:old here=sha256:50ce") for r in found.reasons)


def test_l1_what_the_other_device_has_and_this_one_lacks_is_not_served(serve, make_entry):
    l4, l40s = DeviceId("sm89", "NVIDIA L4"), DeviceId("sm89", "NVIDIA L40S")
    serve({(l40s, BUCKET): make_entry(resources={"shared": 147456, "threads": 128, "regs": 64})})
    found = resolve(KERNEL, SHAPE, l4)
    assert found.status == "default"
    assert found.reasons[0].startswith(f"resources: shared entry=147456 limit=101376 of {l4}")


def test_limits_that_are_given_count_for_a_device_that_is_not_known(serve, make_entry):
    from lfbo_aot.registry.limits import Limits

    serve({BUCKET: make_entry(resources={"shared": 147456, "threads": 128, "regs": 64})})
    assert resolve(KERNEL, SHAPE, STRANGER).status == "same_arch"  # the arch's limits
    here = Environment(limits=Limits(101376, 1024, 65536))
    found = resolve(KERNEL, SHAPE, STRANGER, environment=here)
    assert found.status == "default"
    assert f"shared entry=147456 limit=101376 of {STRANGER}" in found.reasons[0]


def test_a_pinned_entry_comes_before_all_others(serve, make_entry):
    low = serve({LARGER: make_entry(1, pinned=True, versions={"helion": "1.4.0"})})
    top = serve({BUCKET: make_entry(2)})
    here = Environment(versions={"helion": "1.5.0"})
    found = resolve(KERNEL, SHAPE, H200, environment=here)
    assert (warps(found), found.layer, found.fresh) == (1, str(low), False)
    assert f"pinned: the other one is ({top}: NVIDIA H200|{BUCKET})" in found.reasons
    serve({LARGER: make_entry(4, pinned=True, versions={"helion": "1.4.0"})})
    assert warps(resolve(KERNEL, SHAPE, H200, environment=here)) == 4  # of two pinned, the upper


def test_a_pin_serves_nothing_that_does_not_hold(serve, make_entry):
    serve({BUCKET: make_entry(2)})
    serve({BUCKET: make_entry(1, pinned=True, source="sha256:old", status="transferred")})
    here = Environment(source="sha256:50ce")
    assert warps(resolve(KERNEL, SHAPE, H200, environment=here, policy="any")) == 2
    assert warps(resolve(KERNEL, SHAPE, H200)) == 2  # the policy doesn't serve transferred
    assert warps(resolve(KERNEL, SHAPE, H200, policy="any")) == 1


def test_a_pin_holds_for_its_own_device(serve, make_entry):
    serve({BUCKET: make_entry(1), (H100, BUCKET): make_entry(2, pinned=True)})
    assert warps(resolve(KERNEL, SHAPE, H200)) == 1
    assert warps(resolve(KERNEL, SHAPE, H100)) == 2
    assert warps(resolve(KERNEL, SHAPE, "sm90")) == 2


def test_a_smaller_box_that_is_not_pinned_does_not_hide_a_larger_one_that_is(serve, make_entry):
    serve({BUCKET: make_entry(1), LARGER: make_entry(2, pinned=True)})
    assert warps(resolve(KERNEL, SHAPE, H200)) == 2


def test_a_damaged_line_of_the_device_is_not_answered_for_by_another(serve, make_entry):
    path = serve({BUCKET: make_entry(16), (H100, BUCKET): make_entry(2)})
    shard = path / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b'"num_warps": 16', b'"num_warps": 17'))
    lfbo_aot.use_database(path)
    found = resolve(KERNEL, SHAPE, H200)
    assert found.status == "default"
    assert any(r.startswith("damaged:") for r in found.reasons)
    assert resolve(KERNEL, SHAPE, H100).status == "exact"


def test_the_trace_names_every_layer_and_what_was_compared(serve, make_entry):
    bottom = serve({"m=1..16|n=2048|dtype=bfloat16": make_entry(1)})
    middle = serve({BUCKET: make_entry(2, source="sha256:old")})
    top = serve({(H100, BUCKET): make_entry(4)})
    here = Environment(source="sha256:50ce", versions={"helion": "1.5.0", "triton": "3.7.0"})
    found = resolve(KERNEL, SHAPE, H200, environment=here)
    assert (found.status, found.layer) == ("same_arch", str(top))
    mine = [c for c in found.considered if c.layer in map(str, (top, middle, bottom))]
    assert [(c.layer, c.outcome, c.key) for c in mine] == [
        (str(top), "served", f"{H100.name}|{BUCKET}"),
        (str(middle), "refused", f"NVIDIA H200|{BUCKET}"),
        (str(bottom), "nothing held", ""),
    ]
    assert [c.layer for c in found.considered][-1] == "built-in"
    checks = {check.name: check for check in mine[0].checks}
    assert checks["source"][1:] == ("sha256:50ce", "sha256:50ce", "equal", "hard")
    assert checks["triton"][1:] == ("3.6.0", "3.7.0", "differs", "soft")
    assert checks["settings"].verdict == "unchecked"
    assert checks["shared"][1:] == (32768, 232448, "equal", "hard")
    assert checks["device"][1:] == (str(H100), str(H200), "differs", "info")
    assert mine[1].why == ("source: entry=sha256:old here=sha256:50ce",)
    served = [c for c in found.considered if c.outcome == "served"]
    assert [(c.key, c.entry, c.status) for c in served] == [(found.key, found.entry, found.status)]
