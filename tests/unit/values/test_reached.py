"""What a function reaches by ways that stand in no code: wrappers, tables, declarations."""

from __future__ import annotations

import builtins
import importlib.metadata
import types
from collections.abc import Callable
from typing import Any

import pytest

from trivet.errors import Unkeyable
from trivet.values import packages
from trivet.values.functions import Identity
from trivet.values.walk import Walk

Load = Callable[..., types.ModuleType]


def digest(load: Load, source: str, filling: str) -> bytes:
    return Identity(load(source.replace("{}", filling)).f).digest()


PYDANTIC = "from typing import Annotated\nfrom pydantic import *\nclass M(BaseModel):\n    "
STRUCT = "import msgspec\nclass M(msgspec.Struct):\n    "
WRAPS = (
    "import functools\ndef deco(h):\n    @functools.wraps(h)\n    def inner(*a): return h(*a)\n"
    "    return inner\n"
)


@pytest.mark.parametrize(
    ("source", "one", "other"),
    [
        (PYDANTIC + "k: int = {}\ndef f(x): return M().k", "1", "2"),
        (PYDANTIC + "k: {}\ndef f(x): return M(k=x).k", "int", "float"),
        (PYDANTIC + "k: int = Field(ge={})\ndef f(x): return M(k=x).k", "1", "2"),
        (PYDANTIC + "k: str = Field(pattern='{}')\ndef f(x): return M(k=x).k", "1", "2"),
        (PYDANTIC + "k: int = Field(default_factory=lambda: {})\ndef f(x): return M().k", "1", "2"),
        (PYDANTIC + "_k: int = PrivateAttr({})\ndef f(x): return M()._k", "1", "2"),
        (
            PYDANTIC + "k: Annotated[int, AfterValidator(lambda x: x * {})]\n"
            "def f(x): return M(k=x).k",
            "1",
            "2",
        ),
        (STRUCT + "k: {}\ndef f(x): return msgspec.json.decode(x, type=M).k", "int", "float"),
        (
            STRUCT + "k: int = {}\n    l: list = msgspec.field(default_factory=lambda: [])\n"
            "def f(x): return M().k",
            "1",
            "2",
        ),
        (
            STRUCT
            + "l: list = msgspec.field(default_factory=lambda: [{}])\ndef f(x): return M().l",
            "1",
            "2",
        ),
        (
            "import msgspec\nclass M(msgspec.Struct, rename='{}'):\n    k_a: int\n"
            "def f(x): return msgspec.json.encode(M(x))",
            "camel",
            "kebab",
        ),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass M:\n"
            "    l: list = dataclasses.field(default_factory=lambda: [{}])\ndef f(x): return M().l",
            "1",
            "2",
        ),
        (
            "import typing, msgspec\nclass M(typing.TypedDict):\n    k: {}\n"
            "def f(x): return msgspec.json.decode(x, type=M)",
            "int",
            "float",
        ),
    ],
)
def test_what_the_fields_of_a_class_declare_counts(
    load: Load, source: str, one: str, other: str
) -> None:
    assert digest(load, source, one) == digest(load, source, one) != digest(load, source, other)


@pytest.mark.parametrize(
    "source",
    [
        "class M(type):\n    def __call__(cls): return {}\nclass C(metaclass=M): pass\n"
        "def f(x): return C()",
        "class C:\n    @property\n    def p(self): return 0\n    @p.deleter\n"
        "    def p(self): self.x = {}\ndef f(x): return C",
        "import functools\nclass C:\n    def run(self, k): return k\n"
        "    __call__ = functools.partialmethod(run, {})\ndef f(x): return C()()",
        "import dataclasses\nC = dataclasses.make_dataclass('C', ['x'], namespace="
        "{'run': lambda self: {0}})\ndef f(x): return C(1).run()",
        "space = dict()\nexec('class C:\\n    def run(self): return {}', space)\nC = space['C']\n"
        "def f(x): return C().run()",
        "space = dict()\nexec('def g(x): return {}', space)\ng = space['g']\ndef f(x): return g(x)",
        WRAPS + "import dataclasses\n@dataclasses.dataclass\nclass M:\n    k: int\n    @deco\n"
        "    def run(self, x): return self.k * x\nrun = M({}).run\ndef f(x): return run(x)",
        "import functools\n@functools.singledispatch\ndef g(x): return 0\n@g.register\n"
        "def _(x: int): return {}\ndef f(x): return g(x)",
        "import re\nP = re.compile('{}')\ndef f(x): return P.sub('', x)",
        "class C:\n    k = {}\nALL = (C,)\ndef f(x): return ALL[0].k",
        "SCHEMA = dict[str, {'1': int, '2': float}['{}']]\ndef f(x): return g(SCHEMA, x)",
        "import typing\nN = typing.NewType('N', {'1': int, '2': float}['{}'])\n"
        "def f(x): return N.__supertype__(x)",
        "import typing\nT = typing.TypeVar('T', bound={'1': int, '2': float}['{}'])\n"
        "def f(x): return T.__bound__(x)",
        "has = (0, {}).__contains__\ndef f(x): return has(x)",
        "class M:\n    'Say {}.'\ndef f(x): return M",
        "class M:\n    k = 'long' * 1000 + '{}'\ndef f(x): return M.k",
    ],
)
def test_whatever_stands_between_counts(load: Load, source: str) -> None:
    def filled(n: str) -> bytes:
        return Identity(load(source.replace("{0}", n).replace("{}", n)).f).digest()

    assert filled("1") == filled("1") != filled("2")


@pytest.mark.parametrize(
    "source",
    [
        "import string\ng = string.Template('$x').substitute\ndef f(x): return g(x=x)",
        "import functools\nclass S:\n    def __init__(self, h): functools.update_wrapper(self, h)\n"
        "    def __call__(self, x): return self.k\ng = S(len)\ndef f(x): return g(x)",
        "class W:\n    def __init__(self, h): self.__wrapped__, self.k = h, 1\n"
        "    def __call__(self, x): return self.k\nclass C:\n    run = W(len)\n"
        "def f(x): return C.run(x)",
        "class D:\n    def __get__(self, *a): return len\nclass C:\n    __len__ = D()\n"
        "def f(x): return len(C())",
    ],
)
def test_state_that_no_key_can_hold_is_refused(load: Load, source: str) -> None:
    with pytest.raises(Unkeyable, match="has no known form"):
        Identity(load(source).f).digest()


@pytest.mark.parametrize(
    ("source", "change"),
    [
        (
            "class B:\n    def run(self): return 1\nclass C(B): pass\ndef f(x): return C().run()",
            "C.run = lambda self: 2",
        ),
        (
            "class A: k = 1\nclass B: k = 2\nclass C(A): pass\ndef f(x): return C().k",
            "C.__bases__ = (B,)",
        ),
        ("def f(x, *, k=1): return k", "f.__kwdefaults__ = {'k': 2}"),
        (
            "import functools\n@functools.singledispatch\ndef g(x): return 0\n"
            "def f(x): return g(x)",
            "g.register(str, lambda x: 1)",
        ),
        (
            "import functools\n@functools.lru_cache\ndef g(x): return x\ng.k = 1\n"
            "def f(x): return g(x) * g.k",
            "g.k = 2",
        ),
        ("def g(x): return x\ndef f(x): return getattr(g, 'k', 0) or g.k", "g.k = 2"),
    ],
)
def test_what_is_put_in_between_later_is_noticed(load: Load, source: str, change: str) -> None:
    program = load(source)
    identity = Identity(program.f)
    first = identity.digest()
    exec(change, vars(program))
    assert identity.digest() != first


def test_a_builtin_that_is_replaced_is_noticed(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity(load("def f(x): return max(x)").f)
    first = identity.digest()
    monkeypatch.setattr(builtins, "max", lambda x: 2)
    assert identity.digest() != first


def test_what_changes_while_it_is_looked_at_is_looked_at_again(load: Load) -> None:
    program = load("class C:\n    k = 1\nL = [C]\ndef f(x): return L[0].k")
    walk = Walk((), frozenset())
    look = walk._thing

    def changes(found: Any, how: str) -> object:
        program.L.append(2)
        return look(found, how)

    walk._thing = changes  # type: ignore[method-assign]
    walk.of(program.f, ())
    assert not walk.watch.holds()


def test_what_can_no_more_be_keyed_is_an_error_that_says_where(load: Load) -> None:
    program = load("import threading\nL = [1]\ndef f(x): return L")
    identity = Identity(program.f)
    identity.digest()
    program.L.append(program.threading.Lock())
    with pytest.raises(Unkeyable, match=r"f\(\) refers to L\[1\]"):
        identity.digest()


def test_a_module_of_the_program_named_as_one_of_python_counts(load: Load) -> None:
    packages.is_own.cache_clear()
    program = "import profile\ndef f(x): return profile.g(x)"
    load("def g(x): return 1", "profile")
    first = digest(load, program, "")
    load("def g(x): return 2", "profile")
    second = digest(load, program, "")
    packages.is_own.cache_clear()
    assert first != second


def test_all_that_share_a_namespace_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"nowhere": [*map(importlib.metadata.distribution, ("pytest", "numpy"))]}
    monkeypatch.setattr(packages, "_distributions", lambda: found)
    release = packages.release.__wrapped__("nowhere.at.all")
    assert "numpy " in release
    assert ", pytest " in release
