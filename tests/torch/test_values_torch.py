"""Tensors and modules of PyTorch in the keys and values of memos."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from trivet import Cache
from trivet.errors import Unkeyable
from trivet.memory import footprint
from trivet.values import memo
from trivet.values.codec import Values
from trivet.values.forms import form_of


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.factor = 2.0
        self.options = {"act": torch.relu}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.options["act"](self.norm(self.first(x))) * self.factor


def key_of(model: object, cache: Cache) -> bytes:
    @memo(cache, depends=[model])
    def run(x: int) -> int:
        return x

    return run.key(1).digest


def test_tensors_come_back_as_they_were_and_count_by_content(cache: Cache) -> None:
    calls = []

    @memo(cache, ignore=["calls"])
    def double(x: torch.Tensor) -> dict[str, Any]:
        calls.append(x)
        return {"y": x * 2, "empty": x[:0], "half": x.to(torch.bfloat16), "t": x.T}

    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        found = double(x.clone())
        assert torch.equal(found["y"], x * 2)
        assert found["empty"].shape == (0, 3)
        assert found["half"].dtype is torch.bfloat16
        assert torch.equal(found["t"], x.T)
    assert len(calls) == 1
    for other in (x.to(torch.float64), x.reshape(3, 2), x + 1, x.clone().requires_grad_()):
        assert double.key(other) != double.key(x)
    assert double.key(x.T.contiguous().T) == double.key(x)


CHANGES: list[Callable[[Net], object]] = [
    lambda net: net.first.weight.data.add_(1),
    lambda net: net.first.weight.detach().numpy().__setitem__((0, 0, 0, 0), 7.0),
    lambda net: net.norm.running_mean.add_(1),
    lambda net: net.eval(),
    lambda net: setattr(net, "factor", 3.0),
    lambda net: net.options.__setitem__("act", torch.sigmoid),
    lambda net: setattr(net.first, "padding_mode", "reflect"),
    lambda net: setattr(net, "first", torch.nn.Conv2d(3, 4, 3)),
    lambda net: setattr(net.first, "weight", torch.nn.Parameter(torch.zeros(4, 3, 3, 3))),
    lambda net: net.first.weight.requires_grad_(False),
    lambda net: net.add_module("more", torch.nn.Identity()),
    lambda net: net.to(torch.float64),
    lambda net: setattr(net.first.weight, "data", net.first.weight.data.transpose(2, 3)),
    lambda net: setattr(net.norm, "__class__", torch.nn.Identity),
    lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_a_module_changes_the_key(
    change: Callable[[Net], object], cache: Cache
) -> None:
    net = Net()
    before = key_of(net, cache)
    assert key_of(net, cache) == before == key_of(Net(), cache)
    change(net)
    after = key_of(net, cache)
    assert after != before
    assert key_of(net, cache) == after


def test_a_training_step_changes_the_key_and_a_forward_pass_in_eval_does_not(cache: Cache) -> None:
    net = Net().eval()
    before = key_of(net, cache)
    with torch.no_grad():
        net(torch.ones(1, 3, 5, 5))
    assert key_of(net, cache) == before
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.ones(1, 3, 5, 5)).sum().backward()
    optimiser.step()
    net.eval()
    assert key_of(net, cache) != before


def test_weights_are_hashed_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    from trivet.values.adapters import modules

    made = []
    parts = modules.module_parts
    monkeypatch.setattr(modules, "module_parts", lambda each: made.append(each) or parts(each))
    net = Net()
    for _ in range(3):
        key_of(net, cache)
    assert len(made) == 3  # itself and the two in it
    net.norm.eval()
    key_of(net, cache)
    assert len(made) > 3


def test_a_module_and_its_class_are_told_from_others(cache: Cache) -> None:
    def model(factor: int) -> torch.nn.Module:
        class Scaled(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * factor

        return Scaled()

    assert key_of(model(1), cache) == key_of(model(1), cache) != key_of(model(2), cache)
    first, second = model(1), model(2)
    assert key_of([first, second], cache) != key_of([second, first], cache)


def test_hooks_of_all_modules_are_refused_from_when_they_are_there(cache: Cache) -> None:
    model = torch.nn.Linear(2, 2)

    @memo(cache, depends=[model])
    def run(x: int) -> float:
        return float(model(torch.ones(2)).detach().sum())

    run(1)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(2))
    try:
        with pytest.raises(Unkeyable, match="hooks"):
            run(1)
    finally:
        hook.remove()
    run(1)


def test_the_code_of_a_module_counts_each_time_it_is_replaced(cache: Cache) -> None:
    class Adds(torch.nn.Module):
        by = 1

        def forward(self, x: int) -> int:
            return x + self.by

    model = Adds()

    @memo(cache)
    def run(x: int) -> int:
        return int(model(x))

    for by in (1, 2, 3, 2):
        Adds.by = by
        assert run(1) == 1 + by


def test_a_function_of_torchscript_is_refused(cache: Cache) -> None:
    scripted = torch.jit.script(doubled)

    @memo(cache)
    def run(x: int) -> float:
        return float(scripted(torch.ones(1)))

    with pytest.raises(Unkeyable, match="TorchScript"):
        run(1)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_module_with_hooks_or_locks_is_refused(cache: Cache) -> None:
    hooked, locked = Net(), Net()
    hooked.first.register_forward_hook(lambda *_: None)
    locked.lock = threading.Lock()
    with pytest.raises(Unkeyable, match="hooks"):
        key_of(hooked, cache)
    with pytest.raises(Unkeyable, match="lock"):
        key_of(locked, cache)


def test_a_module_that_holds_itself_is_refused(cache: Cache) -> None:
    net = Net()
    net.around = [net]
    for _ in range(2):
        with pytest.raises(Unkeyable, match="holds itself"):
            key_of(net, cache)


def test_a_memoised_method_of_a_module(cache: Cache) -> None:
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.ones(3))

        @memo(cache)
        def encode(self, n: int) -> torch.Tensor:
            return (self.table * n).detach()

    encoder = Encoder()
    assert encoder.encode(2).tolist() == [2, 2, 2]
    assert encoder.encode.look(2).value.tolist() == [2, 2, 2]
    assert [each.tolist() for each in encoder.encode.map([2, 3])] == [[2, 2, 2], [3, 3, 3]]
    assert encoder.encode.check([(2,), (3,)], same=torch.equal).calls == 2
    with torch.no_grad():
        encoder.table[0] = 5
    assert encoder.encode(2).tolist() == [10, 2, 2]


def test_what_has_no_bytes_is_refused(cache: Cache) -> None:
    with pytest.raises(Unkeyable, match="sparse"):
        form_of(torch.eye(3).to_sparse())
    with pytest.raises(Unkeyable, match="has no bytes"):
        form_of(torch.ones(2, device="meta"))
    with pytest.raises(Unkeyable, match="has no bytes"):
        torch.func.vmap(lambda x: form_of(x) and x)(torch.ones(2, 2))
    with pytest.raises(Unkeyable, match="lazy"):
        key_of(torch.nn.LazyLinear(3), cache)
    with pytest.raises(Unkeyable, match="TorchScript"):
        key_of(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), cache)


def test_what_is_set_on_a_tensor_counts() -> None:
    plain, marked, trained = torch.ones(2), torch.ones(2), torch.ones(2)
    assert form_of(plain) == form_of(marked)
    marked.scale = 2  # type: ignore[attr-defined]
    trained.grad = torch.zeros(2)
    assert len({str(form_of(each)) for each in (plain, marked, trained)}) == 3


@pytest.mark.parametrize(
    "setting",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: _until_the_end(torch.set_default_dtype, torch.float64, torch.float32),
        lambda: _until_the_end(torch.set_float32_matmul_precision, "medium", "highest"),
        lambda: _until_the_end(torch.use_deterministic_algorithms, True, False),
        lambda: _with_precision(torch.backends.cuda.matmul, "tf32"),
        lambda: _with_precision(torch.backends.mkldnn.conv, "bf16"),
    ],
)
def test_what_is_set_in_pytorch_counts_where_pytorch_is_used(setting: Any, cache: Cache) -> None:
    @memo(cache)
    def uses(n: int) -> torch.Tensor:
        return torch.ones(n, n) @ torch.ones(n, n)

    @memo(cache)
    def is_given(x: dict[str, torch.Tensor]) -> torch.Tensor:
        return x["x"] @ x["x"]

    @memo(cache)
    def neither(n: int) -> int:
        return n

    def keys() -> list[Any]:
        return [
            uses.key(2),
            is_given.key({"x": torch.ones(2, 2, dtype=torch.float32)}),
            neither.key(2),
        ]

    before = keys()
    with setting():
        uses(2)
        assert [now == then for now, then in zip(keys(), before, strict=True)] == [
            False,
            False,
            True,
        ]
    assert keys() == before


def test_tensors_count_in_memory_with_all_that_they_keep_alive() -> None:
    whole = torch.zeros(1000, 100)
    assert whole.nbytes <= footprint(whole) < whole.nbytes + 1000
    assert footprint({"first": whole[:1]}) >= whole.nbytes
    assert footprint([whole, whole.T]) >= whole.nbytes


@contextlib.contextmanager
def _until_the_end(
    function: Callable[[Any], object], value: object, before: object
) -> Iterator[None]:
    function(value)
    try:
        yield
    finally:
        function(before)


def _with_precision(backend: Any, precision: str) -> Any:
    return _until_the_end(
        lambda value: setattr(backend, "fp32_precision", value), precision, backend.fp32_precision
    )


def test_a_module_with_a_sparse_buffer_is_refused(cache: Cache) -> None:
    model = torch.nn.Linear(2, 2)
    model.register_buffer("mask", torch.eye(2).to_sparse())

    @memo(cache, depends=[model])
    def run(x: int) -> int:
        return x

    with pytest.raises(Unkeyable, match="no fixed bytes"):
        run(1)


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Dropout(0.5),
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.AlphaDropout(0.1)),
        torch.nn.TransformerEncoderLayer(4, 2),
        torch.nn.RReLU(),
    ],
)
def test_a_module_that_draws_random_numbers_is_refused_until_it_does_not(
    module: torch.nn.Module, cache: Cache
) -> None:
    key = key_of(module.eval(), cache)
    with pytest.raises(Unkeyable, match="draws random numbers") as refused:
        key_of(module.train(), cache)
    assert "eval()" in (refused.value.hint or "")
    assert key_of(module.eval(), cache) == key
    assert key_of(torch.nn.Dropout(0.0), cache) != key


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("float32", (1 << 40,), b""),  # memory that nobody has written
        ("float32", (2,), b"1234"),
        ("float32", (1,), b"123"),
        ("quint8", (1,), b"1"),  # of which PyTorch crashes
    ],
)
def test_bytes_that_are_no_tensor_are_an_error_of_value(
    dtype: str, shape: tuple[int, ...], data: bytes
) -> None:
    encode = msgspec.msgpack.encode
    good = bytes(Values().encode(torch.zeros(1)))
    code = msgspec.msgpack.decode(good).code
    raw = encode(msgspec.msgpack.Ext(code, encode((dtype, shape, data))))
    with pytest.raises(ValueError, match=r"tensor|multiple"):
        Values().decode(memoryview(raw))


def test_a_tensor_that_can_not_be_kept_is_told_why() -> None:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    for tensor, why in (
        (nested, "nested|sparse"),
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.ones(2, device="meta"), "on meta"),
        (torch.ones(2, requires_grad=True), "detach"),
    ):
        with pytest.raises(TypeError, match=why):
            Values().encode(tensor)
