from __future__ import annotations

from lfbo_aot.tuning.devices.usage import Usage

IDLE = {"compiling": 0, "gpus_busy": 0, "waiting": False}


def test_what_was_before_the_first_binary_does_not_count():
    usage = Usage()
    usage.see(1.0, compiling=4, gpus_busy=1, waiting=True)
    usage.see(50.0, **IDLE)
    assert set(usage.to_json().values()) == {0.0}


def test_each_span_counts_for_what_went_on_in_it():
    usage = Usage()
    usage.see(1.0, compiling=4, gpus_busy=0, waiting=False)
    usage.first_binary(10.0)
    usage.see(10.0, compiling=3, gpus_busy=1, waiting=False)
    usage.first_binary(11.0)  # no more the first
    usage.see(12.0, compiling=0, gpus_busy=2, waiting=False)  # both for 2 s
    usage.see(15.0, compiling=2, gpus_busy=0, waiting=True)  # GPUs for 3 s
    usage.see(15.5, **IDLE)  # compilers for 0.5 s, with a binary waiting
    usage.see(19.5, compiling=9, gpus_busy=9, waiting=True)  # nothing for 4 s
    assert usage.to_json() == {
        "span_s": 9.5,
        "gpu_busy_s": 5.0,
        "compile_busy_s": 2.5,
        "either_busy_s": 5.5,
        "compile_slots_s": 7.0,
        "ready_wait_s": 0.5,
    }
