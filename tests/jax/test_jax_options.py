"""Options of the JAX backend: what is refused, and what enters the key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.jax_programs import dense

from trivet.errors import BackendError
from trivet.keys import Key
from trivet.plans.backend import FailureKind
from trivet.plans.backends import Jax
from trivet.plans.environment import is_read
from trivet.plans.facts.jax import ENVIRONMENT
from trivet.plans.graph import identify
from trivet.plans.host import HostFacts


def host(**environment: str) -> HostFacts:
    return HostFacts(
        system="linux",
        machine="x86_64",
        instruction_set=("avx2",),
        libc="glibc-2.36",
        environment=environment,
    )


def key(backend: Jax, **environment: str) -> Key:
    return Key("test/1", backend.key_fields(host(**environment)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_isa": "AVX2"}, "names like xla_cpu_max_isa"),
        ({1: "AVX2"}, "names like xla_cpu_max_isa"),
        ({"xla_dump_to": "/tmp"}, "files beside a plan"),
        ({"xla_gpu_kernel_cache_file": "x"}, "files beside a plan"),
        ({"xla_cpu_max_isa": None}, "a string, a number or a bool"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_the_constructor(
    options: dict[Any, Any], text: str
) -> None:
    with pytest.raises(BackendError, match=text):
        Jax(options=options)


def test_every_option_changes_the_key() -> None:
    keys = {
        key(Jax(options=options)).digest
        for options in (
            {},
            {"xla_cpu_max_isa": "AVX2"},
            {"xla_cpu_max_isa": "SSE4_2"},
            {"xla_cpu_enable_fast_math": True},
            {"xla_cpu_enable_fast_math": 1},
        )
    }
    assert len(keys) == 5


def test_options_may_be_written_as_on_a_command_line(tmp_path: Path) -> None:
    """XLA itself takes no texts for them."""
    options = {"xla_cpu_enable_fast_math": "True", "xla_cpu_parallel_codegen_split_count": "2"}
    same = {"xla_cpu_enable_fast_math": True, "xla_cpu_parallel_codegen_split_count": 2}
    assert key(Jax(options=options)) == key(Jax(options=same))
    path = dense(tmp_path / "m.jaxexport")
    (tmp_path / "plan").mkdir()
    Jax(options=options).compile(path, identify(path), {}, tmp_path / "plan")
    assert (tmp_path / "plan" / "plan.xla").stat().st_size > 0


def test_the_number_of_processors_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA divides work by it when it compiles."""
    before = key(Jax())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(1000)))
    assert key(Jax()) != before


def test_the_c_library_is_in_the_key() -> None:
    other = msgspec.structs.replace(host(), libc="glibc-2.40")
    assert Key("test/1", Jax().key_fields(other)) != key(Jax())


def test_both_packages_are_in_the_key() -> None:
    fields = Jax().key_fields(host())
    assert Jax().facts().version.startswith("jaxlib ")
    front = fields["front"]
    assert isinstance(front, dict)
    assert front["version"].startswith("jax ")
    assert len(front["record"]) == 64


# Found in libjax_common.so and in JAX's own list of settings, 0.10.
READ = """
JAX_TRACEBACK_FILTERING JAX_ENABLE_X64 JAX_PLATFORMS JAX_COMPILATION_CACHE_DIR
JAX_DEFAULT_MATMUL_PRECISION JAX_NUM_CPU_DEVICES NPROC PJRT_NPROC OMP_NUM_THREADS OMP_PROC_BIND
TF_CPP_MIN_LOG_LEVEL TF_CPP_MAX_VLOG_LEVEL TF_CPP_VMODULE TF_DISABLE_PROFILING
TF_GCS_AUTH_MAX_REQUESTS TF_PROFILER_TRACE_VIEWER_MAX_EVENTS TF_USE_MODULAR_FILESYSTEM
XLA_DISTRIBUTED_TOPOLOGY_NETWORK_NODES XLA_FLAGS DNNL_GRAPH_COMPILED_PARTITION_CACHE_CAPACITY
"""


def test_every_variable_that_was_found_is_classified() -> None:
    assert [name for name in READ.split() if not is_read(name, ENVIRONMENT)] == []


@pytest.mark.parametrize(
    "name", ["XLA_FLAGS", "JAX_OF_NEXT_YEAR", "JAX_DEFAULT_MATMUL_PRECISION", "NPROC", "LD_PRELOAD"]
)
def test_a_variable_that_is_read_enters_the_key_heard_of_or_not(name: str) -> None:
    assert key(Jax(), **{name: "1"}) != key(Jax())


@pytest.mark.parametrize(
    "name", ["JAX_COMPILATION_CACHE_DIR", "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_LOG_COMPILES"]
)
def test_a_variable_that_changes_no_plan_does_not(name: str) -> None:
    assert key(Jax(), **{name: "1"}) == key(Jax())


def test_an_option_that_xla_does_not_know_fails_for_good(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    (tmp_path / "plan").mkdir()
    backend = Jax(options={"xla_no_such_option": True})
    with pytest.raises(BackendError, match="xla_no_such_option") as caught:
        backend.compile(path, identify(path), {}, tmp_path / "plan")
    assert backend.classify(caught.value) is FailureKind.DETERMINISTIC
