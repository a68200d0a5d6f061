"""What a function is: everything that its code computes with, and nothing else."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from trivet.errors import Unkeyable
from trivet.values.functions import Identity

HELPED = """
LIMIT = 3
def helper(x):
    return x + 1
def f(x):
    return helper(x) * LIMIT
"""


def digest(
    module: types.ModuleType, *, declared: tuple[object, ...] = (), ignored: tuple[str, ...] = ()
) -> bytes:
    return Identity(module.f, declared, frozenset(ignored)).digest()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x + 1", "x + 2"),  # a helper
        ("LIMIT = 3", "LIMIT = 4"),  # a constant
        ("LIMIT = 3", "LIMIT = 3.0"),
        ("* LIMIT", "+ LIMIT"),
        ("def f(x)", "def f(y)"),  # what it is called by matters to who calls by name
        ("def f(x)", "def f(x, y=1)"),
    ],
)
def test_what_it_computes_with_counts(load, before: str, after: str) -> None:  # type: ignore[no-untyped-def]
    assert before in HELPED
    edited = HELPED.replace(before, after).replace(
        "helper(x) *", "helper(y) *" if "y)" in after else "helper(x) *"
    )
    assert digest(load(HELPED)) != digest(load(edited))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def helper", "# a comment\n\n\ndef helper"),
        ("LIMIT = 3", "LIMIT = 3\nOTHER = 4"),
        ("return x + 1", "return (x +\n        1)"),
    ],
)
def test_what_it_does_not_compute_with_does_not(load, before: str, after: str) -> None:  # type: ignore[no-untyped-def]
    assert digest(load(HELPED)) == digest(load(HELPED.replace(before, after)))


@pytest.mark.parametrize(
    "source",
    [
        "def make(n):\n    def f(x): return x * n\n    return f\nf = make({})",
        "def f(x, n={}): return x * n",
        "def f(x, *, n={}): return x * n",
        "class C:\n    n = {}\n    def run(self): return self.n\ndef f(x): return C().run()",
        "class B:\n    def run(self): return {}\nclass C(B): pass\ndef f(x): return C().run()",
        "class C:\n    @property\n    def run(self): return {}\ndef f(x): return C().run",
        "def g(x): return {}\ndef f(x): return (lambda: [g(y) for y in x])()",
        "import functools\n@functools.lru_cache\ndef g(x): return {}\ndef f(x): return g(x)",
        "import functools\ndef deco(g):\n    @functools.wraps(g)\n    def inner(x): return "
        "g(x) + {}\n    return inner\n@deco\ndef g(x): return x\ndef f(x): return g(x)",
        "import functools\ndef g(a, x): return x\nh = functools.partial(g, {})\n"
        "def f(x): return h(x)",
        "f = lambda x: x + {}",
        "def f(x):\n    try:\n        return 1 / x\n"
        "    except {0} and ZeroDivisionError:\n        return 0",
    ],
)
def test_however_it_gets_at_it(load, source: str) -> None:  # type: ignore[no-untyped-def]
    def filled(n: int) -> str:
        return source.replace("{0}", str(n)).replace("{}", str(n))

    assert digest(load(filled(1))) == digest(load(filled(1)))
    assert digest(load(filled(1))) != digest(load(filled(2)))


def test_an_attribute_of_a_module_of_the_program_counts(load) -> None:  # type: ignore[no-untyped-def]
    settings = load("RATE = 1\nOTHER = 1", "settings")
    program = load("import settings\ndef f(x): return x * settings.RATE")
    identity = Identity(program.f, (), frozenset())
    first = identity.digest()
    settings.OTHER = 2
    assert identity.digest() == first
    settings.RATE = 2
    assert identity.digest() != first
    settings.RATE = 1
    assert identity.digest() == first


def test_a_name_that_leads_elsewhere_is_noticed(load) -> None:  # type: ignore[no-untyped-def]
    program = load(HELPED)
    identity = Identity(program.f, (), frozenset())
    first = identity.digest()
    program.LIMIT = 4
    assert identity.digest() != first
    program.LIMIT = 3
    assert identity.digest() == first
    program.helper.__code__ = (lambda x: x + 2).__code__  # as a notebook's reload does
    assert identity.digest() != first


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("class Model:\n    pass\nmodel = Model()\ndef f(x): return model", "refers to model"),
        (
            "import threading\nlocal = threading.local()\ndef f(x): return local.x",
            "refers to local",
        ),
    ],
)
def test_what_no_key_can_hold_is_refused(load, source: str, what: str) -> None:  # type: ignore[no-untyped-def]
    module = load(source)
    name = next(each for each in ("model", "local") if hasattr(module, each))
    with pytest.raises(Unkeyable, match=what):
        digest(module)
    assert digest(module, ignored=(name,))
    assert digest(module, declared=(getattr(module, name),))


def test_packages_count_by_release_and_loggers_not_at_all(load) -> None:  # type: ignore[no-untyped-def]
    source = (
        "import logging, math, re\nimport numpy as np\nlog = logging.getLogger('{}')\n"
        "def f(x):\n    log.info('x')\n    return np.mean(x) + math.pi + len(re.findall('a', x))"
    )
    assert digest(load(source.replace("{}", "a"))) == digest(load(source.replace("{}", "b")))


def test_a_function_that_cython_compiled_counts_by_release(load) -> None:  # type: ignore[no-untyped-def]
    assert type(np.random.default_rng).__name__ == "cython_function_or_method"
    drawn = "import numpy as np\ndef f(seed): return np.random.default_rng(seed).random() + {}"
    assert digest(load(drawn.format(1))) == digest(load(drawn.format(1)))
    assert digest(load(drawn.format(1))) != digest(load(drawn.format(2)))


def test_functions_that_call_each_other_end(load) -> None:  # type: ignore[no-untyped-def]
    source = "def g(x): return f(x) + {}\ndef f(x): return g(x) if x else 0"
    assert digest(load(source.replace("{}", "1"))) != digest(load(source.replace("{}", "2")))


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("TABLE = {1: 2}\ndef f(x): return TABLE[x]", "TABLE[1] = 3"),
        ("ROWS = [[1], [2]]\ndef f(x): return ROWS[x]", "ROWS[0].append(1)"),
        ("import numpy as np\nW = np.ones(3)\ndef f(x): return x @ W", "W[0] = 2"),
        ("W = ([1],)\ndef f(x, w=W): return w", "W[0].append(2)"),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass C:\n    k: int\nc = C(1)\n"
            "def f(x): return c.k * x",
            "c.k = 2",
        ),
        ("class C:\n    k = [1]\ndef f(x): return C.k", "C.k.append(2)"),
        ("class C:\n    k = 1\ndef f(x): return C.k", "C.k = 2"),
    ],
)
def test_what_changes_while_its_name_stays_is_noticed(load, source: str, change: str) -> None:  # type: ignore[no-untyped-def]
    program = load(source)
    identity = Identity(program.f)
    first = identity.digest()
    assert identity.digest() == first
    exec(change, vars(program))
    assert identity.digest() != first


def test_a_class_counts_with_all_its_methods(load) -> None:  # type: ignore[no-untyped-def]
    source = (
        "import abc, functools\nclass B(abc.ABC):\n    def helper(self): return {}\n"
        "class C(B):\n    __slots__ = ('x',)\n    @functools.lru_cache\n"
        "    def run(self): return self.helper()\n    @staticmethod\n    def other(): return 1\n"
    )
    one, other = (load(source.replace("{}", each)).C for each in "12")
    assert Identity(one).digest() == Identity(load(source.replace("{}", "1")).C).digest()
    assert Identity(one).digest() != Identity(other).digest()


def test_a_class_with_something_that_no_key_can_hold_is_refused(load) -> None:  # type: ignore[no-untyped-def]
    program = load("import threading\nclass C:\n    here = threading.local()\ndef f(): return C()")
    with pytest.raises(Unkeyable, match="C has here"):
        digest(program)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import settings", "imports settings"),
        ("from settings import RATE", "imports settings"),
        ("from . import neighbour", "imports a neighbour"),
        ("return (lambda: __import__)() and [settings for _ in ()]", "settings"),
    ],
)
def test_a_module_of_the_program_that_is_imported_late_is_refused(
    load, line: str, what: str
) -> None:  # type: ignore[no-untyped-def]
    load("RATE = 1", "settings")
    program = load(f"import settings\ndef f(x):\n    {line}")
    with pytest.raises(Unkeyable, match=what):
        digest(program)


def test_a_package_that_is_imported_late_counts_by_release(load, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from trivet.values import packages

    program = load("def f(x):\n    import numpy.linalg\n    return numpy.linalg.norm(x)")
    before = digest(program)
    monkeypatch.setattr(packages, "release", lambda module: f"another {module}")
    assert digest(program) != before


def test_releases_are_found_by_the_names_of_modules() -> None:
    from trivet.values.packages import PYTHON, is_own, release

    assert release("_pytest").startswith("pytest ")
    assert release("numpy.linalg").startswith("numpy ")
    assert release("json.decoder") == PYTHON
    assert not is_own("_pytest")
    assert is_own("tests.support")
    with pytest.raises(Unkeyable, match="which release of nowhere_to_be_found"):
        release("nowhere_to_be_found")


def test_who_brings_a_module_is_who_python_says() -> None:
    import importlib.metadata

    from trivet.values.packages import _distributions

    found = {
        module: {each.metadata["Name"] for each in some}
        for module, some in _distributions().items()
    }
    said = importlib.metadata.packages_distributions()
    assert len(said) > 10
    assert {module: names for module, names in said.items() if not {*names} <= found[module]} == {}
    assert found["_pytest"] == {"pytest"}


def test_what_is_declared_is_told_apart_by_its_place(load) -> None:  # type: ignore[no-untyped-def]
    source = "MODE = {}\ndef f(x): return MODE"
    fast, exact = load(source.replace("{}", "'fast'")), load(source.replace("{}", "'exact'"))
    declared = (sys.intern("fast"), sys.intern("exact"))
    assert digest(fast, declared=declared) != digest(exact, declared=declared)


def test_attributes_of_functions_count_where_they_are_read(load) -> None:  # type: ignore[no-untyped-def]
    program = load("def g(x): return x\ng.k, g.other = 1, 1\ndef f(x): return g(x) * g.k")
    identity = Identity(program.f)
    first = identity.digest()
    program.g.other = 2
    assert identity.digest() == first
    program.g.k = 2
    assert identity.digest() != first


def test_a_global_of_the_name_of_a_local_counts(load) -> None:  # type: ignore[no-untyped-def]
    source = (
        "K = {}\ndef f(x):\n    K = x\n    def inner():\n        global K\n        return K\n"
        "    return inner() + (lambda: K)()"
    )
    assert digest(load(source.replace("{}", "1"))) != digest(load(source.replace("{}", "2")))
