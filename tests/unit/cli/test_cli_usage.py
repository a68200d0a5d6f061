from __future__ import annotations

from tests.support.cli import Shell

from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.keys import Key


def keep(cache: Cache, n: int, size: int, lifetime: float | None = None) -> None:
    key = Key("value/1", {"function": "app.embed", "n": n})
    cache.get_or_compute(key, lambda: bytes(size), Bytes(), lifetime=lifetime)


def test_usage_shows_what_holds_the_bytes(shell: Shell) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        keep(cache, 1, 40_000, lifetime=1e6)
        keep(cache, 2, 40_000)
        cache.get_or_compute(Key("other/1", {"n": 1}), lambda: b"x", Bytes())
    done = shell("usage")
    assert done.code == 0
    assert "app.embed" in done.out
    assert "under 100.0 kB" in done.out
    assert "under 1 h" in done.out
    assert "3 entries" in done.out
    assert "2 without a lifetime" in done.out
    document = shell("usage", "--json").json()
    assert [each["name"] for each in document["functions"]] == ["app.embed", "other/1"]
    assert document["functions"][0]["without_lifetime"] == 1
    assert document["total"]["entries"] == 3
    assert document["tier"] == "host"


def test_usage_of_an_empty_folder(shell: Shell) -> None:
    Cache.open(shell.cache, strict=True).close()
    assert shell("usage").out == "nothing is stored\n"


def test_expire_gives_lifetimes_and_removes_what_is_older(shell: Shell) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        keep(cache, 1, 100, lifetime=1e6)
        keep(cache, 2, 100)
    assert "1 value without a lifetime" in shell("expire", "30d", "--dry-run").out
    assert "1 value without a lifetime" in shell("expire", "30d").out
    assert shell("usage", "--json").json()["total"]["without_lifetime"] == 0
    with Cache.open(shell.cache, strict=True) as cache:
        for n in range(300):
            keep(cache, 100 + n, 1)
    document = shell("expire", "0s", "--json").json()
    assert (document["looked"], document["dropped"], document["given"]) == (302, 300, 0)
    assert shell("usage", "--json").json()["total"]["entries"] == 2
    assert shell("expire", "soon").code == 2
