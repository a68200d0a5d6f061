"""Bundles: the same entries make the same bytes, shared bytes are there once, damage stays out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3
from tests.support.bundles import (
    SHARED,
    files_below,
    fill,
    keep,
    make_bundle,
    plan_files,
    plan_key,
)
from tests.support.store_entries import payload

from trivet.cache import Cache
from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, MissingExtra, StoreError, StoreFull, UnsafeFolder
from trivet.plans import bundles
from trivet.stores.bundles import (
    BadKey,
    Bundle,
    SigningKey,
    Source,
    make_key,
    read_writers,
    write_bundle,
)
from trivet.stores.bundles.chunks import Cutter
from trivet.testing import FakeClock


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache.open(tmp_path / "cache", strict=True, clock=FakeClock())


def held(path: Path) -> dict[int, dict[str, bytes]]:
    """The files of each plan of a bundle, read in full."""
    found = {}
    with Bundle.open(path) as bundle:
        for item in bundle.check():
            found[item.key["n"]] = {
                record.name: b"".join(bundle.file(record, blob)) for record, blob in item.files()
            }
    return found


def test_what_goes_in_comes_out(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(3))
    made = bundles.create(cache, tmp_path / "b")
    assert held(tmp_path / "b") == {n: plan_files(n) for n in range(3)}
    assert (made.entries, made.size) == (3, (tmp_path / "b").stat().st_size)


def test_what_plans_share_is_stored_once(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(4))
    made = bundles.create(cache, tmp_path / "b")
    assert made.unpacked > 4 * len(SHARED)
    assert made.size < 1.3 * len(SHARED)


def test_the_same_entries_make_the_same_bytes(tmp_path: Path) -> None:
    clock = FakeClock()
    for name, order in (("a", [0, 1, 2, 3]), ("b", [3, 1, 0, 2])):
        with Cache.open(tmp_path / name, strict=True, clock=clock) as cache:
            for n in order:
                keep(cache, plan_key(n), plan_files(n), tags=("release=1",))
            if name == "b":  # invalidated once, and made again: the epochs are this host's alone
                cache.invalidate("release=1")
                for n in order:
                    keep(cache, plan_key(n), plan_files(n), tags=("release=1",))
            bundles.create(cache, tmp_path / f"{name}.trivet")
    assert (tmp_path / "a.trivet").read_bytes() == (tmp_path / "b.trivet").read_bytes()


def test_a_bundle_of_an_installed_bundle_is_the_same_bundle(tmp_path: Path) -> None:
    first = make_bundle(tmp_path, range(3))
    bundles.install(first, tmp_path / "layer", allow_unsigned=True)
    with Cache.open(tmp_path / "other", layers=[tmp_path / "layer"], strict=True) as cache:
        bundles.create(cache, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == first.read_bytes()


def test_another_process_cuts_alike(tmp_path: Path) -> None:
    code = """
import sys
from trivet.stores.bundles.chunks import Cutter
print(*[len(each.data) for each in Cutter().cut(sys.stdin.buffer.read())])
"""
    data = payload("cut", 700_000)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=data,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    sizes = [len(each.data) for each in Cutter().cut(data)]
    assert [int(each) for each in done.stdout.split()] == sizes
    # Bundles of other releases share nothing with ours if this changes.
    assert sizes[:4] == [53002, 48512, 82988, 39559]


def test_a_file_and_its_bytes_are_cut_alike(tmp_path: Path) -> None:
    data = payload("cut", 3_000_000)
    (tmp_path / "f").write_bytes(data)
    record = FileRecord("f", len(data), blake3(data).digest())
    cutter = Cutter()
    from_file = [each.digest for each in cutter.cut_file(tmp_path / "f", record)]
    assert from_file == [each.digest for each in cutter.cut(data)]


def test_plans_of_a_release_are_chosen(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(2), release="1")
    fill(cache, range(2, 4), release="2")
    bundles.create(cache, tmp_path / "b", release="2")
    assert set(held(tmp_path / "b")) == {2, 3}
    chosen = bundles.choose(cache, backend="fake")
    assert len(chosen) == 4
    assert bundles.choose(cache, backend="other") == []
    with pytest.raises(bundles.NothingToBundle):
        bundles.create(cache, tmp_path / "c", release="3")
    assert not (tmp_path / "c").exists()


def test_failures_and_what_is_invalid_stay_out(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(2), release="1")
    fill(cache, range(2, 3), release="2")
    lease = cache.acquire_files(plan_key(9))
    lease.refuse(ValueError("unsupported"), lifetime=100)  # type: ignore[union-attr]
    cache.invalidate("release=1")
    bundles.create(cache, tmp_path / "b")
    assert set(held(tmp_path / "b")) == {2}


def test_a_failure_is_refused_also_when_it_is_named(cache: Cache, tmp_path: Path) -> None:
    lease = cache.acquire_files(plan_key(9))
    lease.refuse(ValueError("unsupported"), lifetime=100)  # type: ignore[union-attr]
    with pytest.raises(CorruptEntry, match="recorded failure"):
        bundles.create(cache, tmp_path / "b", cache.entries())


@pytest.mark.parametrize("damage", ["flip", "truncate", "grow", "remove"])
def test_a_damaged_plan_is_refused_and_the_old_bundle_stays(
    cache: Cache, tmp_path: Path, damage: str
) -> None:
    target = tmp_path / "out" / "b"
    target.parent.mkdir()
    target.write_bytes(b"old")
    artifact = keep(cache, plan_key(0), plan_files(0))
    file = artifact.verify() / "plan/model.bin"
    file.chmod(0o600)
    raw = bytearray(file.read_bytes())
    match damage:
        case "flip":
            raw[100_000] ^= 1
            file.write_bytes(raw)
        case "truncate":
            file.write_bytes(raw[:-1])
        case "grow":
            file.write_bytes(raw + b"x")
        case "remove":
            file.unlink()
    with pytest.raises(CorruptEntry, match="can't go into a bundle"):
        bundles.create(cache, target)
    assert target.read_bytes() == b"old"
    assert files_below(target.parent) == {"b"}


def test_a_plan_that_goes_meanwhile_is_said(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(1))
    entries = bundles.choose(cache)
    cache.forget(plan_key(0))
    with pytest.raises(StoreError, match="removed meanwhile"):
        bundles.create(cache, tmp_path / "b", entries)


def test_another_entry_under_the_digest_is_refused(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(1))
    found = cache.stored_files(plan_key(0))
    with pytest.raises(CorruptEntry, match="not the one of the digest"):
        write_bundle(tmp_path / "b", [Source(bytes(32), lambda: found)])


def test_a_value_too_large_to_be_unpacked_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.stores.bundles.writer.MAX_SEALED", 1000)
    source = Source(bytes(32), lambda: (bytes(1001), None))
    with pytest.raises(StoreFull, match="1001 bytes"):
        write_bundle(tmp_path / "b", [source])


def test_two_writers_of_one_file_don_t_mix(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(1))
    found = cache.stored_files(plan_key(0))

    def read() -> tuple[bytes | memoryview, Path | None] | None:
        with pytest.raises(StoreError, match="another process is writing"):
            bundles.create(cache, tmp_path / "b")
        return found

    write_bundle(tmp_path / "b", [Source(plan_key(0).digest, read)])
    assert set(held(tmp_path / "b")) == {0}


def test_what_a_dead_writer_left_is_written_over(cache: Cache, tmp_path: Path) -> None:
    fill(cache, range(1))
    (tmp_path / ".b.part").write_bytes(bytes(5_000_000))
    made = bundles.create(cache, tmp_path / "b")
    assert (tmp_path / "b").stat().st_size == made.size
    assert not (tmp_path / ".b.part").exists()


def test_whole_files_are_never_in_memory(tmp_path: Path) -> None:
    size = 64 << 20
    with Cache.open(tmp_path / "cache", strict=True) as cache:
        keep(cache, plan_key(0), {"big": bytes(1000) + payload("big", 1 << 20) * 64})
    code = """
import resource, sys
from trivet.cache import Cache
from trivet.plans import bundles
cache = Cache.open(sys.argv[1], strict=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bundles.create(cache, sys.argv[2])
bundles.verify(sys.argv[2])
bundles.install(sys.argv[2], sys.argv[3], allow_unsigned=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "cache", tmp_path / "b", tmp_path / "layer"],
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) * 1024 < size / 2
    assert (tmp_path / "b").stat().st_size < size / 20


# -- differences -----------------------------------------------------------------------------------


def test_a_difference_names_what_changed_and_what_is_shared(tmp_path: Path) -> None:
    a = make_bundle(tmp_path, range(3), release="a")
    with Cache.open(tmp_path / "next", strict=True) as cache:
        fill(cache, range(1, 4), release="b")
        changed = {**plan_files(9), "plan/new": payload("new", 50_000)}
        cache.forget(plan_key(2))
        keep(cache, plan_key(2), changed, tags=("release=b",))
        bundles.create(cache, tmp_path / "b.trivet")
    found = bundles.diff(a, tmp_path / "b.trivet")
    assert [each.key["n"] for each in found.added] == [3]
    assert [each.key["n"] for each in found.removed] == [0]
    assert {each.key["n"] for each in found.changed} == {1, 2}  # 1: made again, at another time
    assert found.same == 0
    assert found.shared > len(SHARED) * 0.8
    (two,) = [each for each in found.changed if each.key["n"] == 2]
    assert 50_000 <= two.new < 120_000
    same = bundles.diff(a, a)
    assert (same.same, same.added, same.removed, same.changed, same.new) == (3, [], [], [], 0)


# -- signatures ------------------------------------------------------------------------------------


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    make_key(tmp_path / "ci.key", "ci")
    return tmp_path / "ci.key"


def test_a_signature_is_told_and_changes_nothing_else(tmp_path: Path, signer: Path) -> None:
    plain = make_bundle(tmp_path, range(2))
    with Cache.open(tmp_path / "host r1", strict=True) as cache:
        bundles.create(cache, tmp_path / "s", sign=signer)
        bundles.create(cache, tmp_path / "t", sign=signer)
    assert (tmp_path / "s").read_bytes() == (tmp_path / "t").read_bytes()
    unsigned, signed = bundles.verify(plain), bundles.verify(tmp_path / "s")
    assert unsigned.id == signed.id
    assert (unsigned.signed_by, signed.signed_by[:7], signed.writer) == ("", "SHA256:", None)
    trusted = bundles.verify(tmp_path / "s", trust=[f"{signer}.pub"])
    assert trusted.writer == "ci"
    with pytest.raises(bundles.Untrusted):
        bundles.verify(plain, trust=[f"{signer}.pub"])


# Of ``ssh-keygen -t ed25519 -C me`` and of ``openssl genpkey -algorithm ed25519``; used nowhere.
OPENSSH = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACCQcry6/TTK6u1EjY0s+HHvT4paiiiTjy0tb50a3Igs3AAAAIjFTEFoxUxB
aAAAAAtzc2gtZWQyNTUxOQAAACCQcry6/TTK6u1EjY0s+HHvT4paiiiTjy0tb50a3Igs3A
AAAEDHE+uWUWmUPJy3Vef60PuY06ZXW8BQCBEEn6BTRGtzGZByvLr9NMrq7USNjSz4ce9P
ilqKKJOPLS1vnRrciCzcAAAAAm1lAQID
-----END OPENSSH PRIVATE KEY-----
"""
OPENSSH_PUBLIC = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJByvLr9NMrq7USNjSz4ce9PilqKKJOPLS1vnRrciCzc me\n"
)
OPENSSH_FINGERPRINT = "SHA256:UF0CsFVDD/3h1kuUykHEuX3AbpqLoqzU1VH3e5gIOEo"
OPENSSL = """\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIFXVPdWR+gPG91F4VaHp285d5iNc5hvx6uMJZSWXM9P2
-----END PRIVATE KEY-----
"""


def test_keys_of_openssh_are_taken_and_named_alike(tmp_path: Path) -> None:
    key, public = tmp_path / "id", tmp_path / "id.pub"
    key.write_text(OPENSSH)
    key.chmod(0o600)
    public.write_text(OPENSSH_PUBLIC)
    found = bundles.verify(make_bundle(tmp_path, range(1), sign=key), trust=[public])
    assert (found.signed_by, found.writer) == (OPENSSH_FINGERPRINT, "me")


def test_keys_of_openssl_are_taken(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(OPENSSL)
    key.chmod(0o600)
    assert bundles.verify(make_bundle(tmp_path, range(1), sign=key)).signed_by


@pytest.mark.parametrize("there", ["private", "public", "both", "link"])
def test_a_key_is_never_replaced(tmp_path: Path, there: str) -> None:
    private, public = tmp_path / "ci.key", tmp_path / "ci.key.pub"
    if there in ("private", "both"):
        private.write_text("somebody's only key")
    if there in ("public", "both"):
        public.write_text("its other half")
    if there == "link":
        private.symlink_to(tmp_path / "not mounted now")
    before = {
        each: os.readlink(each) if each.is_symlink() else each.read_bytes()
        for each in tmp_path.iterdir()
    }
    with pytest.raises(BadKey, match="never replaced"):
        make_key(private, "again")
    assert before == {
        each: os.readlink(each) if each.is_symlink() else each.read_bytes()
        for each in tmp_path.iterdir()
    }


@pytest.mark.parametrize("name", ["ci.key", "ci.key.pub"])
def test_a_key_that_comes_in_between_is_not_replaced(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def late(source: Path, target: Path) -> None:
        if target.name == name:
            target.write_text("of another process")
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(BadKey, match="never replaced"):
        make_key(tmp_path / "ci.key", "ci")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        name: "of another process"
    }


def test_a_key_is_whole_and_its_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = os.link

    def link(source: Path, target: Path) -> None:
        modes.append((target.name, source.stat().st_mode & 0o777))
        SigningKey.read(source) if target.name == "ci.key" else read_writers([source])
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    before = os.umask(0o022)
    try:
        make_key(tmp_path / "ci.key", "ci")
    finally:
        os.umask(before)
    assert modes == [("ci.key", 0o600), ("ci.key.pub", 0o644)]
    assert files_below(tmp_path) == {"ci.key", "ci.key.pub"}


KEYGEN = """
import os, sys, signal
from pathlib import Path
from trivet.stores.bundles import make_key
real, left = os.write, int(sys.argv[2])
for name in ("link", "unlink", "fsync"):
    def call(*given, real=getattr(os, name)):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)
    setattr(os, name, call)
make_key(Path(sys.argv[1]), "ci")
"""


def test_who_is_killed_while_a_key_is_made_leaves_it_whole_or_none(tmp_path: Path) -> None:
    ends = []
    for steps in range(8):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", KEYGEN, folder / "ci.key", f"{steps}"], check=False
        )
        ends.append(done.returncode)
        if (folder / "ci.key").exists():
            SigningKey.read(folder / "ci.key")
        if (folder / "ci.key.pub").exists():
            assert list(read_writers([folder / "ci.key.pub"]).values()) == ["ci"]
        assert all(each.stat().st_mode & 0o077 == 0 for each in folder.glob(".ci.key.[!p]*"))
    assert ends == [-9] * 6 + [0, 0]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, signer: Path) -> None:
    signer.chmod(0o644)
    with pytest.raises(BadKey, match="others can read"):
        make_bundle(tmp_path, range(1), sign=signer)


@pytest.mark.parametrize("content", [b"", b"nothing", b"-----BEGIN OPENSSH PRIVATE KEY-----\nxx"])
def test_what_is_no_key_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k").write_bytes(content)
    (tmp_path / "k").chmod(0o600)
    with pytest.raises(BadKey):
        SigningKey.read(tmp_path / "k")
    (tmp_path / "pub").write_text("# ours\n\nssh-ed25519 AAAA who\n")
    with pytest.raises(BadKey, match="line 3"):
        read_writers([tmp_path / "pub"])
    (tmp_path / "pub").write_bytes(b"\xff\xfe")
    with pytest.raises(BadKey, match="not a list of public keys"):
        read_writers([tmp_path / "pub"])


def test_a_list_of_writers_that_others_can_write_is_refused(tmp_path: Path, signer: Path) -> None:

    listed = tmp_path / "writers"
    shutil.copy(f"{signer}.pub", listed)
    assert list(read_writers([listed]).values()) == ["ci"]
    listed.chmod(0o666)
    with pytest.raises(UnsafeFolder):
        read_writers([listed])


@pytest.mark.parametrize("package", ["pyfastcdc", "cryptography"])
def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, signer: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'trivet\[bundle\]'"):
        make_bundle(tmp_path, range(1), sign=signer)


def test_nothing_of_an_untrusted_bundle_is_read_where_a_writer_is_required(
    tmp_path: Path, signer: Path
) -> None:
    file = make_bundle(tmp_path, range(1))
    raw = bytearray(file.read_bytes())
    raw[100] ^= 1
    file.write_bytes(raw)
    with pytest.raises(CorruptEntry):
        bundles.verify(file)
    with pytest.raises(bundles.Untrusted):
        bundles.verify(file, trust=[signer.with_name(f"{signer.name}.pub")])
