"""Compiling what a host function launches. The Triton kernels are stand-ins with Triton's shape."""

from __future__ import annotations

import pytest

from lfbo_aot.adapters.launching import CompileFailedError
from lfbo_aot.adapters.launching import compile_and_load
from lfbo_aot.adapters.launching import launches


class Compiled:
    def __init__(self, loading=None):
        self.loading = loading
        self.loaded = 0

    def _init_handles(self):
        if self.loading is not None:
            raise self.loading
        self.loaded += 1


class Kernel:
    """As a `triton.JITFunction`: `run(warmup=True)` compiles and gives the compiled kernel."""

    device_caches = ()

    def __init__(self, compiling=None, loading=None):
        self.compiling = compiling
        self.compiled = Compiled(loading)
        self.runs = []

    def run(self, *args, **kwargs):
        self.runs.append((args, kwargs))
        if self.compiling is not None:
            raise self.compiling
        return self.compiled


class Interpreted:
    """As Triton's interpreter has it: nothing to compile."""


def launcher(kernel, grid, *args, num_warps, **options):
    return kernel.run(*args, grid=grid, warmup=False, num_warps=num_warps, **options)


def host(*kernels, options=None, launch=launcher):
    def function(x, *, _launcher=launch):
        for kernel in kernels:
            _launcher(kernel, (4, 1), x, num_warps=4, **(options or {}))
        return x

    return function


def test_each_kernel_goes_through_the_launcher_to_be_compiled_and_loaded():
    one, two = Kernel(), Kernel()
    assert compile_and_load(host(one, two, options={"num_stages": 2}), ("x",)) == 2
    wanted = {"grid": (4, 1), "warmup": True, "num_warps": 4, "num_stages": 2}
    for kernel in (one, two):
        assert kernel.runs == [(("x",), wanted)]
        assert kernel.compiled.loaded == 1


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel(compiling=MemoryError("shared\nmemory")),
        Kernel(loading=MemoryError("shared\nmemory")),
    ],
)
def test_what_fails_says_why_on_one_line(kernel):
    fine, never = Kernel(), Kernel()
    with pytest.raises(CompileFailedError, match=r"^MemoryError: shared$"):
        compile_and_load(host(fine, kernel, never), ("x",))
    assert fine.compiled.loaded == 1
    assert never.runs == []


def test_a_compilation_by_another_thread_is_awaited():
    class Future:
        def __init__(self, result):
            self.result = lambda: result

    kernel = Kernel()
    compiled, kernel.compiled = kernel.compiled, Future(kernel.compiled)
    assert compile_and_load(host(kernel), ("x",)) == 1
    assert compiled.loaded == 1


def test_nothing_is_compiled_for_the_interpreter():
    assert compile_and_load(host(Interpreted()), ("x",)) == 0


def test_launches_that_would_share_memory_between_processes_are_left_alone():
    kernel = Kernel()
    options = {"_remote_barrier_signal_slots_per_program": 1}
    assert compile_and_load(host(kernel, options=options), ("x",)) == 0
    assert kernel.runs == []
    options = {"_remote_barrier_signal_slots_per_program": 0, "_minimum_resident_programs": 3}
    assert compile_and_load(host(kernel, options=options), ("x",)) == 1


def test_an_error_of_the_host_code_or_of_an_unknown_launcher_is_its_own():
    def failing(x, *, _launcher=launcher):
        raise LookupError(x)

    with pytest.raises(LookupError):
        compile_and_load(failing, ("x",))
    with pytest.raises(TypeError):
        compile_and_load(host(Kernel(), launch=lambda kernel: None), ("x",))
    with pytest.raises(KeyError):
        compile_and_load(lambda x: x, ("x",))


def test_recorded_launches():
    kernel = Kernel()
    (launch,) = launches(host(kernel), ("x",))
    assert (launch.kernel, launch.grid, launch.args) == (kernel, (4, 1), ("x",))
    assert launch.kwargs == {"num_warps": 4}
    assert kernel.runs == []
