"""Changes of a module that is asked about often: each is found, and little is done anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trivet import Cache
from trivet.errors import Unkeyable
from trivet.values import memo
from trivet.values.adapters import modules
from trivet.values.forms import form_of


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.sizes = [1, 2]
        self.scale = 2
        self.last: Any = (1, 2)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.register_buffer("turned", torch.ones(3, dtype=torch.complex64))
        self.register_parameter("none", None)


def rename(owner: Any, old: str, new: str) -> None:
    vars(owner)[new] = vars(owner).pop(old)


def block(net: Net) -> Block:
    found = net.blocks[1]
    assert isinstance(found, Block)
    return found


def weight(net: Net) -> torch.Tensor:
    return block(net).linear.weight


def swapped(mapping: dict[str, Any], one: str, other: str) -> None:
    mapping[one], mapping[other] = mapping[other], mapping[one]


CHANGES: list[Callable[[Net], object]] = [
    lambda net: setattr(block(net), "scale", 2.0),
    lambda net: setattr(block(net), "scale", True),
    lambda net: setattr(block(net), "training", 1),
    lambda net: block(net).sizes.append(3),
    lambda net: block(net).sizes.__setitem__(0, True),
    lambda net: rename(block(net), "last", "other"),
    lambda net: setattr(block(net), "forward", lambda x: x),
    lambda net: setattr(block(net), "more", 1),
    lambda net: delattr(block(net), "last"),
    lambda net: setattr(block(net), "__dict__", {**vars(block(net)), "scale": 3}),
    lambda net: setattr(block(net).norm, "_buffers", {}),
    lambda net: setattr(net, "none", torch.nn.Parameter(torch.ones(1))),
    lambda net: net.blocks.append(torch.nn.ReLU()),
    lambda net: swapped(net.blocks._modules, "0", "1"),  # type: ignore[arg-type]
    lambda net: setattr(net, "__class__", Block),
    lambda net: setattr(block(net).linear, "__class__", torch.nn.Identity),
    lambda net: setattr(net.turned, "data", net.turned.data.conj()),
    lambda net: setattr(weight(net), "data", weight(net).data.t()),
    lambda net: setattr(weight(net), "data", weight(net).data[:2]),
    lambda net: setattr(weight(net), "data", weight(net).data.clone() + 1),
    lambda net: block(net).linear.bias.requires_grad_(False),
    lambda net: torch.nn.init.zeros_(block(net).linear.weight),
    lambda net: block(net).linear.bias.detach().numpy().fill(7),
    lambda net: block(net).norm.num_batches_tracked.numpy().__setitem__((), 7),
    lambda net: block(net).norm(torch.ones(2, 4)),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_deep_in_a_module_that_was_asked_about_often_is_found(
    change: Callable[[Net], object], cache: Cache
) -> None:
    net = Net()

    @memo(cache, depends=[net])
    def run(x: int) -> int:
        return x

    before = run.key(1)
    for _ in range(60):
        assert run.key(1) is before
    change(net)
    after = run.key(1)
    assert after != before
    assert run.key(1) is after


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda *_: None),
        lambda module: module.register_forward_pre_hook(lambda *_: None),
        lambda module: module.register_full_backward_hook(lambda *_: None),
        lambda module: module.register_full_backward_pre_hook(lambda *_: None),
    ],
)
def test_a_hook_on_a_module_that_is_known_is_refused_until_it_is_gone(
    register: Any, cache: Cache
) -> None:
    net = Net()

    @memo(cache, depends=[net])
    def run(x: int) -> int:
        return x

    before = run.key(1)
    handle = register(block(net).linear)
    for _ in range(2):
        with pytest.raises(Unkeyable, match="hooks"):
            run.key(1)
    handle.remove()
    assert run.key(1) == before


def test_a_tensor_whose_memory_was_given_away_is_refused() -> None:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(Unkeyable, match="given away"):
        form_of(tensor)


def test_memos_of_one_module_hash_its_weights_once_each_way(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    parts = modules.module_parts
    monkeypatch.setattr(modules, "module_parts", lambda each: made.append(each) or parts(each))
    net = torch.nn.Linear(2, 2)

    @memo(cache, depends=[net])
    def declared(x: int) -> int:
        return x

    @memo(cache)
    def refers(x: int) -> int:
        return x if net.training else 0

    @memo(cache)
    def given(x: int, module: torch.nn.Module) -> int:
        return x

    for _ in range(5):
        declared(1), refers(1), given(1, net)
    assert len(made) <= 4
    net.eval()
    declared(1), refers(1), given(1, net)
    made.clear()
    for _ in range(5):
        declared(1), refers(1), given(1, net)
    assert not made


def test_a_module_is_let_go_with_all_that_is_known_of_it(cache: Cache) -> None:
    import gc
    import weakref

    net = Net()

    @memo(cache)
    def given(module: torch.nn.Module) -> int:
        return 1

    given(net)
    inner, number = weakref.ref(block(net)), id(net)
    assert number in modules._known
    del net
    gc.collect()
    assert inner() is None
    assert number not in modules._known


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex128],
)
def test_weights_of_all_sizes_are_looked_at(dtype: torch.dtype, cache: Cache) -> None:
    net = torch.nn.Module()
    net.register_buffer("w", torch.zeros(5, 7, dtype=dtype)[1:, ::2])
    net.register_buffer("empty", torch.zeros(0, 3, dtype=dtype))

    @memo(cache, depends=[net])
    def run(x: int) -> int:
        return x

    before = run.key(1)
    assert run.key(1) is before
    raw = torch.empty(0, dtype=torch.uint8).set_(net.w.untyped_storage()).numpy()
    raw[net.w.storage_offset() * net.w.element_size()] = 1
    assert run.key(1) != before
