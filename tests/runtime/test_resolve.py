from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import lfbo_aot
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import MissError
from lfbo_aot.errors import SettingError
from lfbo_aot.errors import ShapeError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.dims import Exact
from lfbo_aot.registry.dims import Range
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.resolve import get_config
from lfbo_aot.runtime.resolve import resolve

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
ARCH = "sm90/NVIDIA H200"
BUCKET = "m=17..256|n=2048|dtype=bfloat16"
SHAPE = {"m": 100, "n": 2048, "dtype": "bfloat16"}
UNCHECKED = "not checked: source, settings, versions"
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
PCIE = DeviceId("sm90", "NVIDIA H100 PCIe")
B200 = DeviceId("sm100", "NVIDIA B200")


@pytest.fixture
def serve(tmp_path, write_database):
    """Lay a new database over the rest: `{kernel: {bucket or (device, bucket): entry}}`."""
    count = iter(range(100))

    def lay(kernels, **more):
        path = write_database(tmp_path / f"tuned{next(count)}", kernels, **more)
        lfbo_aot.use_database(path)
        return path

    return lay


def texts(caplog):
    return [record.getMessage() for record in caplog.records]


def test_an_exact_answer(serve, make_entry):
    path = serve({KERNEL: {BUCKET: make_entry(8)}})
    found = resolve(KERNEL, SHAPE, ARCH)
    assert found.config == {"block_sizes": [8, 1], "num_warps": 8, "pid_type": "flat"}
    assert found.status == "exact"
    assert found.fresh is None
    assert found.entry == make_entry(8)
    assert found.layer == str(path)
    assert found.reasons == (UNCHECKED,)
    assert found.key == f"NVIDIA H200|{BUCKET}"


@pytest.mark.parametrize("kernel", [KERNEL, "norm"])
@pytest.mark.parametrize(
    "shape",
    [SHAPE, dict(reversed(SHAPE.items())), (100, 2048, "bfloat16"), [100, 2048, "bfloat16"]],
)
@pytest.mark.parametrize("arch", [ARCH, DeviceId("sm90", "NVIDIA H200"), "sm_90a/NVIDIA H200"])
def test_one_answer_however_it_is_asked(serve, make_entry, kernel, shape, arch):
    serve({KERNEL: {BUCKET: make_entry(8)}})
    assert get_config(kernel, shape, arch) == make_entry(8).config
    assert get_config(kernel, shape, arch) == make_entry(8).config


def test_a_torch_dtype_is_its_name(serve, make_entry):
    import torch

    serve({KERNEL: {BUCKET: make_entry(8)}})
    assert get_config(KERNEL, {**SHAPE, "dtype": torch.bfloat16}, ARCH)["num_warps"] == 8
    assert get_config(KERNEL, (100, 2048, torch.float16), ARCH) == {}


@pytest.mark.parametrize(
    ("m", "warps"), [(16, 1), (17, 2), (100, 2), (256, 2), (257, 4), (4096, 4)]
)
def test_at_below_and_above_the_tuning_point(serve, make_entry, m, warps):
    rest = "|n=2048|dtype=bfloat16"
    held = {f"m=1..16{rest}": 1, f"m=17..256{rest}": 2, f"m=257..4096{rest}": 4}
    serve({KERNEL: {key: make_entry(w) for key, w in held.items()}})
    assert get_config(KERNEL, {**SHAPE, "m": m}, ARCH) == make_entry(warps).config


def test_the_smallest_box_wins(serve, make_entry):
    rest = "|n=2048|dtype=bfloat16"
    serve({KERNEL: {f"m=1..4096{rest}": make_entry(1), f"m=90..110{rest}": make_entry(2)}})
    assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 2
    assert get_config(KERNEL, {**SHAPE, "m": 111}, ARCH)["num_warps"] == 1


def test_a_config_is_read_only_and_shares_nothing(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry(8)}})
    config = get_config(KERNEL, SHAPE, ARCH)
    with pytest.raises(TypeError):
        config["num_warps"] = 1
    config["block_sizes"].append(7)
    dict(config)["block_sizes"].append(7)
    assert get_config(KERNEL, SHAPE, ARCH) == make_entry(8).config
    assert type(config["block_sizes"]) is list


def test_an_entry_whose_winner_is_the_default_is_an_entry(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry(8, default=True)}})
    found = resolve(KERNEL, SHAPE, ARCH)
    assert (found.status, found.config["num_warps"]) == ("exact", 8)


@pytest.mark.parametrize(
    "shape",
    [
        {**SHAPE, "m": 257},
        {**SHAPE, "m": 16},
        {**SHAPE, "m": 4097},
        {**SHAPE, "m": 0},
        {**SHAPE, "n": 5120},
        {**SHAPE, "n": 2049},
        {**SHAPE, "dtype": "float16"},
        {**SHAPE, "dtype": "float32"},
    ],
)
def test_outside_every_box_is_the_default(serve, make_entry, shape, caplog):
    serve({KERNEL: {BUCKET: make_entry(8)}})
    found = resolve(KERNEL, shape, ARCH)
    assert (found.status, found.config, found.entry, found.layer) == ("default", {}, None, None)
    assert not found.config
    looked_up = f"NVIDIA H200|m={shape['m']}|n={shape['n']}|dtype={shape['dtype']}"
    assert found.key == looked_up
    (reason,) = found.reasons
    assert f"nothing is held for sm90/{looked_up};" in reason
    assert f"nearest held: sm90/NVIDIA H200|{BUCKET};" in reason
    dims = f"m={shape['m']} n={shape['n']} dtype={shape['dtype']}"
    assert f"tune it: lfbo-aot tune {KERNEL} {dims}" in reason
    assert reason.endswith("(with --module where no package announces it)")
    declared = 1 <= shape["m"] <= 4096 and shape["n"] != 2049 and shape["dtype"] != "float32"
    assert ("outside every declared bucket" in reason) is not declared
    assert texts(caplog) == [f"{KERNEL}: {reason}"]


def test_the_nearest_key_is_the_nearest(serve, make_entry):
    rest = "|n=2048|dtype=bfloat16"
    held = {
        f"m=1..16{rest}": make_entry(),
        f"m=257..1024{rest}": make_entry(),
        (H100, f"m=17..128{rest}"): make_entry(),
        (B200, f"m=17..256{rest}"): make_entry(),
    }
    serve({KERNEL: held})

    def nearest(m, arch=ARCH):
        reason = resolve(KERNEL, {**SHAPE, "m": m}, arch).reasons[0]
        return reason.partition("nearest held: ")[2].partition(";")[0]

    assert nearest(2000) == f"sm90/NVIDIA H200|m=257..1024{rest}"
    assert nearest(200) == f"sm90/NVIDIA H200|m=257..1024{rest}"
    assert nearest(130, str(PCIE)) == f"sm90/{H100.name}|m=17..128{rest}"
    assert nearest(200, "sm80/NVIDIA A100-SXM4-40GB") == f"sm100/NVIDIA B200|m=17..256{rest}"


def test_one_warning_for_one_miss(serve, make_entry, caplog):
    serve({KERNEL: {BUCKET: make_entry()}})
    for _ in range(3):
        resolve(KERNEL, {**SHAPE, "m": 300}, ARCH)
        resolve(KERNEL, {**SHAPE, "m": 300}, DeviceId("sm90", "NVIDIA H200"))
        resolve("norm", (300, 2048, "bfloat16"), ARCH)
    assert len(texts(caplog)) == 1


def test_many_misses_do_not_flood_the_log(serve, make_entry, caplog):
    serve({KERNEL: {BUCKET: make_entry()}})
    for m in range(300, 400):
        resolve(KERNEL, {**SHAPE, "m": m}, ARCH)
    assert len(texts(caplog)) == 51
    assert texts(caplog)[-1] == f"{KERNEL}: 50 warnings; no more of this kind follow"


@pytest.mark.parametrize("arch", ["sm100/NVIDIA B300X", "sm121", "gfx942:sramecc+:xnack-"])
def test_an_unknown_device_is_no_error(serve, make_entry, arch):
    serve({KERNEL: {BUCKET: make_entry()}})
    found = resolve(KERNEL, SHAPE, arch)
    assert (found.status, found.config) == ("default", {})
    assert ("isn't among the known devices" in found.reasons[0]) is ("/" in arch)


def test_a_drivers_name_is_the_device(serve, make_entry):
    serve({KERNEL: {(H100, BUCKET): make_entry(2)}})
    assert resolve(KERNEL, SHAPE, "sm90/NVIDIA H100").status == "exact"


def test_a_bare_arch_takes_the_best_known_of_its_devices(serve, make_entry):
    serve(
        {
            KERNEL: {
                BUCKET: make_entry(1, latency_us=20.0),
                (H100, BUCKET): make_entry(2, latency_us=10.0),
                (PCIE, BUCKET): make_entry(4, latency_us=30.0),
                (B200, BUCKET): make_entry(8, latency_us=1.0),
            }
        }
    )
    found = resolve(KERNEL, SHAPE, "sm90")
    assert (found.status, found.config["num_warps"]) == ("same_arch", 2)
    assert found.reasons == (f"same_arch: measured on {H100}", UNCHECKED)
    assert resolve(KERNEL, SHAPE, "sm90", policy="any").status == "same_arch"
    refused = resolve(KERNEL, SHAPE, "sm90", policy="exact")
    assert refused.status == "default"
    assert len(refused.reasons) == 3
    assert all(r.startswith("policy: exact doesn't serve same_arch") for r in refused.reasons)


@pytest.mark.parametrize(
    "resources", [{"shared": 232449}, {"threads": 1025}, {"regs": 129, "threads": 512}]
)
def test_what_the_device_does_not_have_is_not_served(serve, make_entry, resources):
    serve({KERNEL: {BUCKET: make_entry(resources=resources)}})
    found = resolve(KERNEL, SHAPE, ARCH)
    assert found.status == "default"
    numbers = {
        "shared": "shared entry=232449 limit=232448",
        "threads": "threads entry=1025 limit=1024",
        "regs": "registers entry=66048 limit=65536",
    }
    expected = f"resources: {numbers[next(iter(resources))]} of {ARCH}"
    assert found.reasons[0].startswith(expected)


def test_resources_at_the_limit_are_served(serve, make_entry):
    resources = {"shared": 232448, "threads": 512, "regs": 128, "spills": 3}
    serve({KERNEL: {BUCKET: make_entry(resources=resources)}})
    assert resolve(KERNEL, SHAPE, ARCH).status == "exact"


def test_the_environment_is_checked(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry()}})

    def ask(policy="compatible", **given):
        return resolve(KERNEL, SHAPE, ARCH, policy=policy, environment=Environment(**given))

    agreeing = {"helion": "1.5.0", "triton": "3.6.0+x"}
    assert ask(versions=agreeing).fresh is True
    stale = ask(versions={"helion": "1.6.0"})
    assert (stale.status, stale.fresh) == ("exact", False)
    assert stale.reasons == ("helion: entry=1.5.0 here=1.6.0", "not checked: source, settings")
    refused = ask("exact", versions={"helion": "1.6.0"})
    assert refused.status == "default"
    assert "helion: entry=1.5.0 here=1.6.0" in refused.reasons[0]
    assert ask("exact", versions=agreeing).status == "exact"
    assert ask("exact").status == "exact"
    edited = ask(source="sha256:edited")
    assert edited.status == "default"
    assert edited.reasons[0].startswith("source: entry=sha256:50ce here=sha256:edited")
    assert ask("any", settings={"fast_math": True, "static_shapes": True}).status == "default"


def test_layers_answer_in_order_and_fresh_ones_before_stale(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry(1, versions={"helion": "1.5.0"})}})
    top = serve({KERNEL: {BUCKET: make_entry(2, versions={"helion": "1.4.0"})}})
    assert resolve(KERNEL, SHAPE, ARCH).layer == str(top)
    here = Environment(versions={"helion": "1.5.0"})
    found = resolve(KERNEL, SHAPE, ARCH, environment=here)
    assert (found.config["num_warps"], found.fresh) == (1, True)
    other = Environment(versions={"helion": "1.6.0"})
    found = resolve(KERNEL, SHAPE, ARCH, environment=other)
    assert (found.config["num_warps"], found.fresh) == (2, False)


def test_a_refused_entry_does_not_hide_the_next_layers(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry(1, source="sha256:new")}})
    serve({KERNEL: {BUCKET: make_entry(2, source="sha256:old")}})
    found = resolve(KERNEL, SHAPE, ARCH, environment=Environment(source="sha256:new"))
    assert (found.status, found.config["num_warps"]) == ("exact", 1)
    assert any(r.startswith("source: entry=sha256:old here=sha256:new") for r in found.reasons)


@pytest.mark.parametrize(
    ("status", "policies"), [("imported", "compatible any"), ("transferred", "any")]
)
def test_other_origins_need_their_policy(serve, make_entry, status, policies):
    serve({KERNEL: {BUCKET: make_entry(status=status)}})
    for policy in ("exact", "compatible", "any"):
        served = policy in policies.split()
        assert resolve(KERNEL, SHAPE, ARCH, policy=policy).status == (
            status if served else "default"
        )


# What is wrong with the question


def test_unknown_and_ambiguous_kernels(serve, make_entry):
    serve({"a.norm": {BUCKET: make_entry()}, "b.norm": {BUCKET: make_entry()}})
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'nrom'\. Did you mean 'norm'"):
        get_config("nrom", SHAPE, ARCH)
    with pytest.raises(AmbiguousKernelError, match=r"a\.norm, b\.norm"):
        get_config("norm", SHAPE, ARCH)
    assert get_config("b.norm", SHAPE, ARCH)
    with pytest.raises(UnknownNameError, match=r"made by lfbo_aot\.kernel"):
        get_config(len, SHAPE, ARCH)


@pytest.mark.parametrize(
    ("shape", "error", "says"),
    [
        ({**SHAPE, "mm": 1}, UnknownNameError, "'mm'. Did you mean 'm'"),
        ({"m": 1, "n": 2048}, ShapeError, "dim 'dtype': missing"),
        ((1, 2048), ShapeError, "2 values for 3 dims, which are m, n, dtype"),
        ("m", ShapeError, "the shape is a str"),
        (7, ShapeError, "the shape is a int"),
        ({**SHAPE, "m": True}, ShapeError, "dim 'm': True is bool; the dim takes int"),
        ({**SHAPE, "m": "100"}, ShapeError, "dim 'm'"),
        ({**SHAPE, "m": 100.5}, ShapeError, "dim 'm'"),
        ({**SHAPE, "m": None}, ShapeError, "dim 'm'"),
        ({**SHAPE, "dtype": 16}, ShapeError, "dim 'dtype': 16 is int; the dim takes str"),
        ({**SHAPE, "dtype": "bf16"}, ShapeError, "Use 'bfloat16'"),
        ((100, 2048, ["x"]), ShapeError, "dim 'dtype'"),
    ],
)
def test_wrong_shapes(serve, make_entry, shape, error, says):
    serve({KERNEL: {BUCKET: make_entry()}})
    for _ in range(2):
        with pytest.raises(error) as caught:
            get_config(KERNEL, shape, ARCH)
        assert says in str(caught.value)
        assert KERNEL in str(caught.value)


def test_a_bool_is_not_the_number_that_it_equals(serve, make_entry):
    dims = {"m": Range(0, 1), "causal": Exact(True, False)}
    serve({KERNEL: {"m=0..1|causal=true": make_entry()}}, dims=dims)
    assert get_config(KERNEL, (1, True), ARCH)
    for wrong in ((True, True), (1, 1)):
        with pytest.raises(ShapeError):
            get_config(KERNEL, wrong, ARCH)


def test_no_arch(serve, make_entry):
    path = serve({KERNEL: {BUCKET: make_entry()}})
    code = (
        "import lfbo_aot, sys; lfbo_aot.use_database(sys.argv[1])\n"
        f"lfbo_aot.get_config({KERNEL!r}, {SHAPE!r})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "DeviceUnavailableError: no arch is given" in done.stderr
    assert "Pass arch=, such as 'sm90/NVIDIA H200'" in done.stderr


def test_no_arch_takes_torchs_current_device(serve, make_entry, monkeypatch):
    from lfbo_aot.runtime import hardware

    serve({KERNEL: {BUCKET: make_entry(1), (H100, BUCKET): make_entry(2)}})
    for device, warps in ((DeviceId("sm90", "NVIDIA H200"), 1), (H100, 2)):
        monkeypatch.setattr(hardware, "current_device", lambda device=device: device)
        assert get_config(KERNEL, SHAPE)["num_warps"] == warps
    monkeypatch.setattr(hardware, "current_device", lambda: None)
    with pytest.raises(DeviceUnavailableError):
        get_config(KERNEL, SHAPE)


def test_an_arch_that_is_none(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry()}})
    with pytest.raises(UnknownNameError, match=r"An arch is written like sm90"):
        get_config(KERNEL, SHAPE, "!?")


# The store and the policy


def test_policies(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry()}})
    assert resolve(KERNEL, SHAPE, "sm90").status == "same_arch"
    with lfbo_aot.use_policy("exact"):
        assert resolve(KERNEL, SHAPE, "sm90").status == "default"
        assert resolve(KERNEL, SHAPE, "sm90", policy="any").status == "same_arch"
    assert resolve(KERNEL, SHAPE, "sm90").status == "same_arch"
    with pytest.raises(SettingError, match=r"Did you mean 'compatible'"):
        lfbo_aot.use_policy("compatable")
    with pytest.raises(SettingError, match=r"policy='exat' is not valid"):
        resolve(KERNEL, SHAPE, ARCH, policy="exat")
    with pytest.raises(SettingError, match=r"on_miss='eror'"):
        lfbo_aot.use_policy("exact", on_miss="eror")


def test_on_miss_error(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry()}})
    missing = {**SHAPE, "m": 300}
    assert get_config(KERNEL, missing, ARCH) == {}
    with lfbo_aot.use_policy("compatible", on_miss="error"):
        for _ in range(2):
            with pytest.raises(MissError, match=r"nearest held: .*; tune it: lfbo-aot tune"):
                get_config(KERNEL, missing, ARCH)
        assert get_config(KERNEL, SHAPE, ARCH)
    assert get_config(KERNEL, missing, ARCH) == {}


def test_the_environments_policy(isolated, serve, make_entry):
    isolated.setenv("LFBO_AOT_ON_MISS", "error")
    serve({KERNEL: {BUCKET: make_entry()}})
    with pytest.raises(MissError):
        get_config(KERNEL, {**SHAPE, "m": 300}, ARCH)


def test_databases_lie_over_each_other(tmp_path, write_database, make_entry):
    low = write_database(tmp_path / "low", {KERNEL: {BUCKET: make_entry(1)}})
    high = write_database(tmp_path / "high", {KERNEL: {BUCKET: make_entry(2)}})
    with pytest.raises(DatabaseError, match=r"no such folder"):
        lfbo_aot.use_database(tmp_path / "none")
    with lfbo_aot.use_database(low):
        assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 1
        with lfbo_aot.use_database(high):
            assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 2
            with lfbo_aot.use_database(str(low)):
                assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 1
        assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 1
    with pytest.raises(UnknownNameError):
        get_config(KERNEL, SHAPE, ARCH)


def test_path_then_user_then_built_in(isolated, tmp_path, write_database, make_entry):
    user = tmp_path / "user-data" / "lfbo-aot" / "tuned"
    write_database(user, {KERNEL: {BUCKET: make_entry(1)}})
    assert resolve(KERNEL, SHAPE, ARCH).layer == "user"
    path = write_database(tmp_path / "path", {KERNEL: {BUCKET: make_entry(2)}})
    from lfbo_aot.runtime import settings
    from lfbo_aot.runtime import state

    isolated.setenv("LFBO_AOT_PATH", str(path))
    settings.current.cache_clear()
    state.refresh()
    assert resolve(KERNEL, SHAPE, ARCH).layer == str(path)


def test_the_working_folder_is_no_layer(tmp_path, write_database, make_entry, monkeypatch):
    write_database(tmp_path / "tuned", {KERNEL: {BUCKET: make_entry()}})
    for folder in (tmp_path, tmp_path / "tuned"):
        monkeypatch.chdir(folder)
        with pytest.raises(UnknownNameError):
            get_config(KERNEL, SHAPE, ARCH)


def test_a_lookup_writes_nothing(serve, make_entry):
    path = serve({KERNEL: {BUCKET: make_entry()}})
    before = {f: f.stat().st_mtime_ns for f in path.parent.rglob("*")}
    resolve(KERNEL, SHAPE, ARCH)
    resolve(KERNEL, {**SHAPE, "m": 300}, ARCH)
    assert {f: f.stat().st_mtime_ns for f in path.parent.rglob("*")} == before


def test_a_refresh_sees_what_was_merged(serve, make_entry, write_database):
    from lfbo_aot.runtime import state

    path = serve({KERNEL: {BUCKET: make_entry(1)}})
    assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 1
    write_database(path, {KERNEL: {BUCKET: make_entry(2)}})
    state.refresh()
    assert get_config(KERNEL, SHAPE, ARCH)["num_warps"] == 2


def test_threads_agree(serve, make_entry):
    serve({KERNEL: {BUCKET: make_entry(4)}})
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(get_config(KERNEL, SHAPE, ARCH)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [make_entry(4).config] * 8
