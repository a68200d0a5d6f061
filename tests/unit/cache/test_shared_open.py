"""How the shared tier is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trivet.cache import Cache
from trivet.errors import MissingExtra


@pytest.mark.parametrize(
    "urls",
    [
        "http://host/x",
        "/a/folder",
        "",
        [],
        ["file:///a", "s3://b"],
        ["valkey://a:1/0", "redis://b:1/0"],
    ],
)
def test_a_url_that_is_not_understood_is_an_error_at_once(
    tmp_path: Path, urls: str | list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    monkeypatch.setitem(sys.modules, "obstore", ModuleType("obstore"))
    client = ModuleType("valkey")
    monkeypatch.setattr("trivet.cache.shared.ValkeyStore", lambda _: client)
    with pytest.raises(ValueError, match="shared tier"):
        Cache.open(tmp_path, shared=urls)


@pytest.mark.parametrize(
    ("url", "package"), [("s3://bucket/x", "obstore"), ("valkey://host:1/0", "valkey")]
)
def test_a_client_that_is_not_installed_is_named(
    tmp_path: Path, url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'trivet\[shared\]'"):
        Cache.open(tmp_path, shared=url)


def test_without_one_a_cache_is_its_own_host_only(tmp_path: Path) -> None:
    with Cache.open(tmp_path) as cache:
        assert cache.host_only is cache
