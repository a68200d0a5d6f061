"""Layers: installed whole or not at all, only from who is trusted; a roll-back finds its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.bundles import files_below, make_bundle, plan_key

from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.errors import CorruptEntry, StoreFull, StoreUnavailable, UnsafeFolder
from trivet.keys import Key
from trivet.plans import bundles
from trivet.stores.bundles import make_key
from trivet.stores.layers import Layer


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path, range(2))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "layer"


def install(bundle: Path, root: Path, **options: bool) -> bundles.Installed:
    return bundles.install(bundle, root, allow_unsigned=True, **options)


def has(root: Path, n: int) -> bool:
    layer = Layer(root)
    return layer.find(plan_key(n).digest, layer.bundles()) is not None


def test_what_is_installed_is_sound_and_readable_by_all(bundle: Path, root: Path) -> None:
    done = install(bundle, root)
    assert (done.entries, done.was_there, len(done.bundles)) == (2, False, 1)
    verdicts = bundles.verify_layer(root)
    assert [each.problem for each in verdicts] == [None, None]
    assert sum(each.size for each in verdicts) == done.size
    modes = {each.stat().st_mode & 0o777 for each in root.rglob("*") if each.name != "lock"}
    assert modes == {0o755, 0o644}
    assert os.listdir(root / "staging") == []


def test_installing_again_changes_nothing(bundle: Path, root: Path) -> None:
    install(bundle, root)
    before = {each: each.stat().st_ino for each in root.rglob("*") if each.is_file()}
    assert install(bundle, root).was_there
    assert before == {each: each.stat().st_ino for each in root.rglob("*") if each.is_file()}


@pytest.mark.parametrize("damage", ["flip", "remove", "entry"])
def test_installing_again_mends_damage(bundle: Path, root: Path, damage: str) -> None:
    done = install(bundle, root)
    folder = root / "bundles" / done.id
    (victim,) = folder.glob(f"files/{plan_key(0).digest.hex()}/plan/model.bin")
    if damage == "entry":
        victim = folder / "entries" / plan_key(0).digest.hex()
    raw = bytearray(victim.read_bytes())
    raw[len(raw) // 2] ^= 4
    victim.unlink() if damage == "remove" else victim.write_bytes(raw)
    problems = [each.problem for each in bundles.verify_layer(root)]
    assert sum(each is not None for each in problems) == 1
    assert not install(bundle, root).was_there
    assert [each.problem for each in bundles.verify_layer(root)] == [None, None]


def test_bundles_lie_side_by_side_and_a_roll_back_finds_its_own(tmp_path: Path, root: Path) -> None:
    old, new = (
        make_bundle(tmp_path, range(2), release="old"),
        make_bundle(tmp_path, range(1, 3), release="new"),
    )
    first, second = install(old, root).id, install(new, root).id
    assert Layer(root).bundles() == (second, first)
    assert [has(root, n) for n in range(3)] == [True, True, True]
    found = Layer(root).find(plan_key(1).digest, Layer(root).bundles())
    assert found is not None
    assert found.bundle == second
    back = install(old, root)
    assert back.was_there
    assert back.bundles == (first, second)


def test_a_roll_back_that_replaces_leaves_the_old_alone(tmp_path: Path, root: Path) -> None:
    old = make_bundle(tmp_path, range(2), release="old")
    new = make_bundle(tmp_path, range(1, 3), release="new")
    install(old, root)
    install(new, root, replace=True)
    assert [has(root, n) for n in range(3)] == [False, True, True]
    install(old, root, replace=True)
    assert [has(root, n) for n in range(3)] == [True, True, False]
    assert len(os.listdir(root / "bundles")) == 1


def test_a_layer_that_is_open_sees_what_is_installed(tmp_path: Path, root: Path) -> None:
    install(make_bundle(tmp_path, range(1), release="a"), root)
    layer = Layer(root)
    install(make_bundle(tmp_path, range(1, 2), release="b"), root, replace=True)
    assert layer.find(plan_key(1).digest, layer.bundles()) is not None
    assert layer.find(plan_key(0).digest, layer.bundles()) is None


def test_what_is_no_layer_is_left_alone(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    with pytest.raises(StoreUnavailable, match="precious"):
        install(bundle, other)
    assert files_below(other) == {"precious"}
    with pytest.raises(StoreUnavailable, match="no bundle is installed"):
        Layer(other)
    with pytest.raises(StoreUnavailable):
        Layer(tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable, match="no bundle is installed"):
        bundles.verify_layer(other)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"format":1,"bundles":["../../etc"]}',
        b'{"format":1,"bundles":["' + b"A" * 64 + b'"]}',
        b'{"format":2,"bundles":[]}',
    ],
)
def test_a_damaged_list_is_no_layer(bundle: Path, root: Path, raw: bytes) -> None:
    install(bundle, root)
    (root / "layer.json").write_bytes(raw)
    with pytest.raises(StoreUnavailable):
        Layer(root)
    with pytest.raises(StoreUnavailable, match="and install the bundles again"):
        install(bundle, root)
    (root / "layer.json").unlink()
    install(bundle, root)
    assert has(root, 0)


def test_a_link_for_a_folder_leads_nothing_into_removal(
    bundle: Path, root: Path, tmp_path: Path
) -> None:
    install(bundle, root)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (root / "staging").rmdir()
    (root / "staging").symlink_to(tmp_path / "precious")
    with pytest.raises(UnsafeFolder, match="staging"):
        install(bundle, root)
    assert os.listdir(tmp_path / "precious") == ["file"]


@pytest.mark.parametrize("where", ["", "bundles", "bundles/*"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_layer_that_others_could_change_is_refused(
    bundle: Path, root: Path, where: str, mode: int
) -> None:
    install(bundle, root)
    (target,) = root.glob(where) if where else [root]
    target.chmod(mode)
    with pytest.raises(UnsafeFolder):
        Layer(root)
    with pytest.raises(UnsafeFolder):
        install(bundle, root)


def test_a_pod_s_own_volume_lets_everybody_write_and_says_so(bundle: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    with pytest.raises(UnsafeFolder, match="could be replaced by anybody"):
        install(bundle, volume / "layer")
    install(bundle, volume / "layer", private_volume=True)
    with pytest.raises(UnsafeFolder):
        Layer(volume / "layer")  # it is fine where it is mounted read-only: see tests/e2e


@pytest.mark.needs("root")
def test_a_layer_of_another_user_is_refused(bundle: Path, root: Path) -> None:
    install(bundle, root)
    os.chown(root / "bundles", 12345, 12345)
    with pytest.raises(UnsafeFolder, match="12345"):
        Layer(root)


def test_without_room_nothing_is_installed(
    bundle: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def small(path: Path) -> os.statvfs_result:
        facts = list(real(path))
        facts[3:5] = [0, 0]
        return os.statvfs_result(facts)

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(StoreFull, match="0 are free"):
        install(bundle, root)
    assert os.listdir(root / "bundles") == []


# -- trust -----------------------------------------------------------------------------------------


def test_code_is_installed_only_from_writers_who_are_trusted(tmp_path: Path, root: Path) -> None:
    for name in ("ci", "other"):
        make_key(tmp_path / name, name)
    unsigned = make_bundle(tmp_path, range(1), release="u")
    signed = make_bundle(tmp_path, range(1), release="s", sign=tmp_path / "ci")
    for bundle, options in (
        (unsigned, {}),
        (unsigned, {"trust": [tmp_path / "ci.pub"]}),
        (signed, {}),
        (signed, {"trust": [tmp_path / "other.pub"]}),
        (signed, {"allow_unsigned": True}),
    ):
        with pytest.raises(bundles.Untrusted):
            bundles.install(bundle, root, **options)
        assert not root.exists()
    writers = tmp_path / "writers"
    writers.write_text(
        "# ours\n" + "".join((tmp_path / f"{n}.pub").read_text() for n in ("other", "ci"))
    )
    bundles.install(signed, root, trust=[writers])
    assert [each.problem for each in bundles.verify_layer(root, trust=[writers])] == [None]
    with pytest.raises(bundles.Untrusted):
        bundles.verify_layer(root, trust=[tmp_path / "other.pub"])
    install(unsigned, root)


def test_values_are_believed_only_of_writers_who_are_trusted(tmp_path: Path, root: Path) -> None:
    make_key(tmp_path / "ci", "ci")
    with Cache.open(tmp_path / "host", strict=True) as cache:
        cache.get_or_compute(Key("value/1", {"n": 1}), lambda: b"an answer", Bytes())
        entries = list(cache.entries())
        bundles.create(cache, tmp_path / "plain", entries)
        bundles.create(cache, tmp_path / "signed", entries, sign=tmp_path / "ci")
    for name in ("plain", "signed"):
        with pytest.raises(bundles.Untrusted):
            bundles.install(tmp_path / name, root)
        assert not root.exists()
    bundles.install(tmp_path / "signed", root, trust=[tmp_path / "ci.pub"])
    install(tmp_path / "plain", tmp_path / "other")


def test_a_signature_of_another_bundle_is_no_signature(tmp_path: Path, root: Path) -> None:
    make_key(tmp_path / "ci", "ci")
    good = make_bundle(tmp_path, range(1), release="a", sign=tmp_path / "ci").read_bytes()
    signature = good[-int.from_bytes(good[32:40], "little") :]
    evil = make_bundle(tmp_path, range(2), release="b")
    raw = bytearray(evil.read_bytes()) + signature
    raw[32:40] = len(signature).to_bytes(8, "little")
    evil.write_bytes(raw)
    for options in ({"trust": [tmp_path / "ci.pub"]}, {"allow_unsigned": True}):
        with pytest.raises(CorruptEntry, match="not of this bundle"):
            bundles.install(evil, root, **options)
    with pytest.raises(CorruptEntry):
        bundles.verify(evil)
    assert not root.exists()


def test_what_the_layer_keeps_of_the_signature_is_checked(tmp_path: Path, root: Path) -> None:
    make_key(tmp_path / "ci", "ci")
    done = bundles.install(
        make_bundle(tmp_path, range(1), sign=tmp_path / "ci"), root, trust=[tmp_path / "ci.pub"]
    )
    folder = root / "bundles" / done.id
    shutil.copy(folder / "signature", tmp_path / "kept")
    for name in ("signature", "contents"):
        raw = bytearray((folder / name).read_bytes())
        raw[-1] ^= 1
        (folder / name).write_bytes(raw)
        with pytest.raises(CorruptEntry):
            bundles.verify_layer(root)
        shutil.copy(tmp_path / "kept", folder / "signature")


@pytest.mark.parametrize("name", ["signature", "contents"])
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_installing_again_mends_what_a_layer_is_checked_by(
    tmp_path: Path, root: Path, name: str, damage: str
) -> None:
    make_key(tmp_path / "ci", "ci")
    trust = [tmp_path / "ci.pub"]
    file = make_bundle(tmp_path, range(1), sign=tmp_path / "ci")
    victim = root / "bundles" / bundles.install(file, root, trust=trust).id / name
    raw = bytearray(victim.read_bytes())
    raw[-1] ^= 1
    victim.unlink() if damage == "remove" else victim.write_bytes(raw)
    with pytest.raises(CorruptEntry):
        bundles.verify_layer(root, trust=trust)
    assert bundles.install(file, root, trust=trust).was_there
    assert [each.problem for each in bundles.verify_layer(root, trust=trust)] == [None]


def test_a_bundle_that_is_signed_later_is_signed_in_the_layer(tmp_path: Path, root: Path) -> None:
    make_key(tmp_path / "ci", "ci")
    trust = [tmp_path / "ci.pub"]
    first = install(make_bundle(tmp_path, range(1)), root)
    signed = tmp_path / "signed.trivet"
    with Cache.open(tmp_path / "host r1", strict=True) as cache:
        bundles.create(cache, signed, release="r1", sign=tmp_path / "ci")
    assert bundles.install(signed, root, trust=trust).id == first.id
    assert [each.problem for each in bundles.verify_layer(root, trust=trust)] == [None]
