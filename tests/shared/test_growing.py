"""Two hosts that add to one guarded folder: what one adds, the other doesn't take away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.hosts import Host
from tests.support.toys import COMPILE, GUARD, python, run
from tests.unit.plans.folders.test_guard import BASE, opened

from trivet.cache import Hit
from trivet.errors import StoreUnavailable
from trivet.events import EventKind
from trivet.plans.folders import growing
from trivet.plans.folders.learned import Learned
from trivet.stores.shared.requests import Requests

MakeHost = Callable[[str], Host]


@pytest.fixture(params=["s3", "folder"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        url: str = request.getfixturevalue("s3")
        return url
    (tmp_path / "bucket").mkdir()
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture
def make_host(tmp_path: Path, bucket: str) -> Iterator[MakeHost]:
    made: list[Host] = []

    def make(name: str) -> Host:
        made.append(Host(tmp_path / name, bucket))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Run:
    """A guarded run on a host, which compiles what it is told to."""

    def __init__(self, host: Host, place: Path) -> None:
        self.kept = opened(host.cache, place)

    def compile(self, name: str) -> None:
        (self.kept.path / name).write_text(f"code of {name}")
        link = self.kept.path / f"{name}.so"
        link.symlink_to(name)
        link.chmod(0o755)

    def capture(self) -> bool:
        return self.kept.capture(lambda: BASE, lambda: BASE)

    def has(self) -> set[str]:
        found = {each.name for each in self.kept.path.iterdir()}
        assert all((self.kept.path / each).read_text().startswith("code of") for each in found)
        return {each for each in found if not each.endswith(".so")}


def test_runs_of_two_hosts_add_to_each_other(bucket: str, tmp_path: Path) -> None:
    shared = (*GUARD, "--shared", bucket)
    said = []
    for host, names in (("a", "x"), ("b", "x"), ("a", "xy"), ("b", "xz"), ("c", "xyz")):
        done = run(tmp_path / host, [*python(COMPILE), *names], *shared)
        said.append("".join(line[0] for line in done.stdout.splitlines()))
    assert said == ["m", "h", "hm", "hm", "hhh"]


def test_who_was_overtaken_reads_what_the_other_wrote_and_tries_again(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (Run(make_host(name), tmp_path / f"run {name}") for name in "ab")
    a.compile("x")
    b.compile("y")
    real, asked = Requests.get_version, 0

    def overtaken(self: Requests, name: str) -> object:
        nonlocal asked
        found = real(self, name)
        asked += 1
        if asked == 1:  # a has looked, and has yet to write
            assert b.capture()
        return found

    monkeypatch.setattr(Requests, "get_version", overtaken)
    assert a.capture()
    assert Run(make_host("c"), tmp_path / "run c").has() == {"x", "y"}
    assert Run(make_host("a"), tmp_path / "again").has() == {"x", "y"}
    assert Run(make_host("b"), tmp_path / "b again").has() == {"y"}, "what it had it need not fetch"


def test_who_is_overtaken_again_and_again_keeps_its_own_and_goes_on(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Run(make_host("a"), tmp_path / "run a")
    a.compile("x")
    writes = []

    def lost(self: Requests, name: str, *_: object) -> bool:
        if name.startswith("entries/"):
            writes.append(name)
        return False

    monkeypatch.setattr(Requests, "create", lost)
    assert a.capture()
    assert len(writes) == growing._TRIES
    assert Run(make_host("a"), tmp_path / "again").has() == {"x"}


def test_what_can_not_be_read_is_not_replaced(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make_host("b")
    a, b = Run(make_host("a"), tmp_path / "run a"), Run(alone, tmp_path / "run b")
    a.compile("x")
    assert a.capture()
    b.compile("y")

    def fail(self: Requests, name: str) -> None:
        raise StoreUnavailable("for a moment")

    with monkeypatch.context() as broken:
        broken.setattr(Requests, "get_version", fail)
        assert b.capture()
    assert alone.events.count(EventKind.TIER_FAILED)
    assert Run(make_host("c"), tmp_path / "run c").has() == {"x"}
    b.compile("z")
    assert b.capture()
    assert Run(make_host("d"), tmp_path / "run d").has() == {"x", "y", "z"}


def test_damage_in_what_is_added_to_is_left_out_and_healed(
    make_host: MakeHost, tmp_path: Path
) -> None:
    one, two = make_host("a"), make_host("b")
    a, b = Run(one, tmp_path / "run a"), Run(two, tmp_path / "run b")
    a.compile("x")
    assert a.capture()
    assert one.objects is not None
    found = one.cache.get_files(BASE)
    assert isinstance(found, Hit)
    (record,) = [each for each in found.value.manifest.files if each.name == "x"]
    one.objects.requests.put(f"blobs/{record.blake3.hex()}", b"rotten")
    b.compile("y")
    assert b.capture()
    assert two.events.of(EventKind.QUARANTINED)
    assert Run(make_host("c"), tmp_path / "run c").has() == {"y"}


def test_names_that_two_hosts_have_learnt_are_kept_together(make_host: MakeHost) -> None:
    a, b = (Learned(make_host(name).cache, (b"serve",)) for name in "ab")
    nothing: set[str] = set()
    a.learn(BASE, nothing, {"/x.so"})
    assert b.installed(BASE, nothing) == ["/x.so"]
    a.learn(BASE, nothing, {"/y.so"})
    b.learn(BASE, nothing, {"/z.so"})
    c = Learned(make_host("c").cache, (b"another",))
    assert c.installed(BASE, nothing) == ["/x.so", "/y.so", "/z.so"]
