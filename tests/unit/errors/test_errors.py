"""Errors: one tree, with hints, able to cross processes."""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from trivet import errors
from trivet.errors import ComputeFailed, InvalidKey, MissingExtra, StoreFull, TrivetError

ALL = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, TrivetError)
]


def make(cls: type[TrivetError]) -> TrivetError:
    if cls is ComputeFailed:
        return ComputeFailed("what", hint="do", error_class="ValueError", error_text="why")
    return cls("what", hint="do")


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_message_and_hint_are_shown(cls: type[TrivetError]) -> None:
    error = make(cls)
    assert str(error) == "what\n  hint: do"
    assert error.args == ("what",)


def test_without_a_hint_there_is_only_the_message() -> None:
    assert str(StoreFull("no room")) == "no room"


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_errors_survive_pickle_and_copy(cls: type[TrivetError]) -> None:
    error = make(cls)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is cls
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def fail() -> None:
    raise ComputeFailed("no", hint="fix it", error_class="OSError", error_text="text")


def test_an_error_raised_in_another_process_arrives_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(fail).exception()
    assert isinstance(error, ComputeFailed)
    assert str(error) == "no\n  hint: fix it"
    assert (error.error_class, error.error_text) == ("OSError", "text")


def test_errors_are_also_what_python_callers_expect() -> None:
    assert issubclass(InvalidKey, ValueError)
    assert issubclass(MissingExtra, ImportError)
    assert not issubclass(StoreFull, ValueError)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_says_when_it_is_raised(cls: type[TrivetError]) -> None:
    assert cls.__doc__
    assert cls.__doc__ != (cls.__base__ or object).__doc__
