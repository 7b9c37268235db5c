"""On a GPU: stored configs are compiled and loaded before they are set, and run as stored.

Run with `pytest tests/gpu`; skipped where there is no GPU.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

from helion.runtime.kernel import BoundKernel  # noqa: E402

import lfbo_aot  # noqa: E402
from lfbo_aot.adapters.fragments import space_digest  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402
from lfbo_aot.registry.layout import describe_layout  # noqa: E402
from lfbo_aot.runtime.hardware import current_device  # noqa: E402
from lfbo_aot.runtime.serving import unserved_bind  # noqa: E402
from lfbo_aot.runtime.versions import loaded_versions  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated")

DEVICE = current_device()
SIZE = 1024
# More shared memory than any GPU has: (256 x 128 + 128 x 256) values of 2 bytes, six times.
ABSURD = {"block_sizes": [256, 256, 128], "num_warps": 8, "num_stages": 6, "pid_type": "flat"}
FINE = {"block_sizes": [64, 64, 32], "num_warps": 4, "num_stages": 2, "pid_type": "flat"}


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


def bump(x: torch.Tensor, calls: torch.Tensor) -> torch.Tensor:
    calls.add_(1)  # host code that writes an argument
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


EDGES = Range(1, 1 << 20, edges=[1024, 65536])


def matrices(m: int) -> tuple[Any, Any]:
    x = torch.randn(m, SIZE, device="cuda", dtype=torch.bfloat16)
    return x, torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)


@pytest.fixture
def declared() -> Any:
    """Makes a declared kernel of a function, with one dim for the rows."""

    def declare(function: Any, dtype: str = "float32", **settings: Any) -> Any:
        dims = {"m": EDGES, "dtype": Exact(dtype)}
        count = function.__code__.co_argcount
        shape = (
            (lambda x: {"m": x.size(0), "dtype": x.dtype})
            if count == 1
            else (lambda x, y: {"m": x.size(0), "dtype": x.dtype})
        )
        return lfbo_aot.kernel(dims=dims, shape=shape, package="gputest", **settings)(function)

    return declare


@pytest.fixture
def hold(make_entry: Any, write_database: Any, tmp_path: Any) -> Any:
    """Lays a database over the rest that holds (config, alternates) for each bucket of a kernel."""

    def write(made: Any, make_args: Any, configs: list[tuple[Any, list[Any]]]) -> Any:
        spec = made.lfbo_aot_spec
        entries = {}
        for bucket, (config, alternates) in zip(spec.buckets, configs, strict=False):
            args = made.normalize_args(*make_args(bucket.point["m"]))
            entries[DEVICE, bucket.key] = make_entry(
                config=config,
                alternates=alternates,
                source=spec.source,
                settings=spec.settings,
                layout=list(describe_layout(args)),
                space=space_digest(unserved_bind(made, args)),
                versions=loaded_versions(),
            )
        path = write_database(tmp_path / "tuned", {spec.kernel_id: entries}, dims=spec.dims)
        made.reset()
        return lfbo_aot.use_database(path)

    return write


@pytest.fixture
def compiles(monkeypatch: Any) -> Counter[str]:
    """How often Triton compiled a kernel, or read one from its folder, by name."""
    import triton

    counted: Counter[str] = Counter()

    def hook(*_: Any, fn: Any, **__: Any) -> None:
        counted[fn.name] += 1

    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", hook)
    return counted


def said(caplog: Any) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "lfbo_aot.runtime.serving"]


def config_of(made: Any, *args: Any) -> Any:
    return made.bind(made.normalize_args(*args))._config.config


def test_the_call_after_the_trial_compiles_nothing(declared: Any, hold: Any, compiles: Any) -> None:
    made = declared(product, "bfloat16")
    with hold(made, matrices, [(FINE, [])]):
        args = matrices(512)
        bound = made.bind(args)
        assert bound._config.config == FINE
        tried = sum(compiles.values())
        assert tried == 1
        out = made(*args)
        for _ in range(3):
            made(*args)
    assert sum(compiles.values()) == tried
    torch.testing.assert_close(out, torch.matmul(*args), rtol=2e-2, atol=2e-1)


def test_a_config_that_cannot_be_loaded_falls_back_to_its_alternate(
    declared: Any, hold: Any, caplog: Any
) -> None:
    made = declared(product, "bfloat16")
    with hold(made, matrices, [(ABSURD, [FINE])]), caplog.at_level(logging.WARNING, "lfbo_aot"):
        for m in (1024, 512, 512):
            args = matrices(m)
            torch.testing.assert_close(made(*args), torch.matmul(*args), rtol=2e-2, atol=2e-1)
            assert config_of(made, *args) == FINE
    (text,) = said(caplog)
    assert "OutOfResources" in text
    assert "alternate number 1" in text


def test_then_to_the_default(declared: Any, hold: Any, caplog: Any) -> None:
    made = declared(product, "bfloat16")
    with hold(made, matrices, [(ABSURD, [])]), caplog.at_level(logging.WARNING, "lfbo_aot"):
        args = matrices(512)
        torch.testing.assert_close(made(*args), torch.matmul(*args), rtol=2e-2, atol=2e-1)
        bound = made.bind(args)
        assert bound._config == bound.config_spec.default_config()
    (text,) = said(caplog)
    assert "Helion's default" in text


def vectors(m: int) -> tuple[Any, ...]:
    return (torch.randn(m, device="cuda"),)


def warps(count: int) -> dict[str, Any]:
    return {"block_sizes": [256], "num_warps": count, "num_stages": 2, "pid_type": "flat"}


BOTH = [(warps(1), []), (warps(4), [])]


def test_host_code_that_writes_an_argument_does_so_once(declared: Any, hold: Any) -> None:
    made = declared(bump, mutates=("calls",))

    def args(m: int) -> tuple[Any, Any]:
        return torch.randn(m, device="cuda"), torch.zeros(1, device="cuda")

    with hold(made, args, BOTH):
        x, calls = args(1024)
        for number in (1, 2, 3):
            torch.testing.assert_close(made(x, calls), x + 1)
            assert calls.item() == number


def test_dynamic_shapes_run_their_own_buckets_config(declared: Any, hold: Any) -> None:
    made = declared(scale, static_shapes=False)
    with hold(made, vectors, BOTH):
        for m in (1024, 65536, 1000, 5000, 1024, 3):
            (x,) = vectors(m)
            torch.testing.assert_close(made(x, 3.0), x * 3)
            assert config_of(made, x)["num_warps"] == (1 if m <= 1024 else 4)
        assert len({id(bound) for bound in made._bound_kernels.values()}) == 2


def test_many_threads_call_many_shapes_for_the_first_time(declared: Any, hold: Any) -> None:
    made = declared(scale)
    sizes = [512, 1024, 4096, 65536] * 2
    start = threading.Barrier(len(sizes))
    wrong: list[Any] = []

    def call(m: int) -> None:
        try:
            (x,) = vectors(m)
            start.wait()
            for _ in range(5):
                if not torch.equal(made(x, 2.0), x * 2):
                    wrong.append(m)
            if config_of(made, x)["num_warps"] != (1 if m <= 1024 else 4):
                wrong.append(m)
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)

    with hold(made, vectors, BOTH):
        threads = [threading.Thread(target=call, args=(m,)) for m in sizes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("warm", [True, False], ids=["after a call", "the first call"])
def test_a_graph_is_captured_and_replayed(declared: Any, hold: Any, warm: bool) -> None:
    made = declared(product, "bfloat16")
    with hold(made, matrices, [(ABSURD, [FINE])]):
        if not warm:
            made(*matrices(256))  # Triton's own set-up, of another shape
        x, y = matrices(1024)
        if warm:
            made(x, y)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = made(x, y)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(out, torch.matmul(x, y), rtol=2e-2, atol=2e-1)
        assert config_of(made, x, y) == FINE


def test_a_prepared_function_runs_the_served_config(
    declared: Any, hold: Any, compiles: Any
) -> None:
    made = declared(scale)
    with hold(made, vectors, BOTH):
        (x,) = vectors(1024)
        call = made.prepare(x, 3.0)
        assert config_of(made, x)["num_warps"] == 1
        before = sum(compiles.values())
        torch.testing.assert_close(call(x, 3.0), x * 3)
        torch.testing.assert_close(call(x=x, factor=3.0), x * 3)
        assert sum(compiles.values()) == before
        for other in (x[:512], x[::2], x.double(), *vectors(65536)):
            torch.testing.assert_close(call(other, 3.0), other * 3)
        torch.testing.assert_close(call(x), x * 2)


@pytest.mark.filterwarnings("ignore:Raw SymInt")  # torch 2.13, of Helion's own call
@pytest.mark.parametrize("fullgraph", [False, True], ids=["breaks allowed", "full graph"])
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_under_torch_compile_nothing_is_tuned(
    declared: Any, hold: Any, monkeypatch: Any, fullgraph: bool, static: bool
) -> None:
    def tune(*_: Any, **__: Any) -> None:
        msg = "Helion's tuner was reached"
        raise AssertionError(msg)

    monkeypatch.setattr(BoundKernel, "autotune", tune)
    torch._dynamo.reset()
    made = declared(scale, static_shapes=static)
    with hold(made, vectors, BOTH):
        # Without Helion's hooks in Inductor Dynamo traces into the call, of Helion's kernels too:
        # that takes a call of the same shape before.
        for m in (1024, 65536):
            made(*vectors(m), 3.0)
        compiled = torch.compile(
            lambda x: made(x, 3.0) + 1, fullgraph=fullgraph, dynamic=not static
        )
        for m in (1024, 65536, 1024):
            (x,) = vectors(m)
            torch.testing.assert_close(compiled(x), x * 3 + 1)
