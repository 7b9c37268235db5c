from __future__ import annotations

import types
from types import SimpleNamespace

import pytest

from lfbo_aot.registry import catalog


@pytest.fixture
def own_catalog(monkeypatch):
    """Kernels declared by a test are known to that test alone."""
    monkeypatch.setattr(catalog, "_specs", {})


@pytest.fixture
def answers(monkeypatch):
    """Stands for the store: what look-ups answer, by the arguments, and what they were asked."""
    from lfbo_aot.runtime import resolve as resolve_module
    from lfbo_aot.runtime.resolution import Resolution

    found = SimpleNamespace(asked=[], answer=lambda *args: None)

    def resolve(kernel, args, arch=None, *, policy=None, environment=None):
        found.asked.append((kernel, args, environment))
        answer = found.answer(*args)
        if answer is None:
            return Resolution()
        key, config, *alternates = answer
        frozen = types.MappingProxyType(config)
        entry = SimpleNamespace(alternates=tuple(alternates), space="")
        return Resolution(frozen, "exact", entry=entry, layer="a layer", key=key)

    monkeypatch.setattr(resolve_module, "resolve", resolve)
    return found


@pytest.fixture
def ran(monkeypatch):
    """Calls of compiled functions, as (config, arguments): on a CPU there is nothing to launch."""
    from helion.runtime.kernel import BoundKernel

    calls = []

    def compile_config(bound, config=None, **_):
        plain = dict(getattr(config, "config", config))

        def run(*args):
            calls.append((plain, args))
            return plain

        return run

    monkeypatch.setattr(BoundKernel, "compile_config", compile_config)
    return calls
