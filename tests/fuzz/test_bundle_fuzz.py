"""Bundles from anywhere: flipped bits, cut ends and hostile contents make errors, never entries."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from tests.support.bundles import files_below, keep, plan_key
from tests.support.store_entries import payload

from trivet.cache import ArtifactLease, Cache
from trivet.entries import Descriptor, FileRecord, Manifest, seal
from trivet.entries.bundle import HEAD_SIZE, MAGIC, EntryRecord
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.plans import bundles
from trivet.stores.bundles import Bundle, SigningKey, compare, make_key

REFUSED = (CorruptEntry, IncompatibleEntry)
REGIONS = ("head", "chunks", "contents", "signature")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key and the bundle ``good``, of two small plans."""
    home = tmp_path_factory.mktemp("bundles")
    make_key(home / "key", "ci")
    with Cache.open(home / "cache", strict=True) as cache:
        for n in range(2):
            lease = cache.acquire_files(plan_key(n), tags=("release=1",))
            assert isinstance(lease, ArtifactLease)
            with lease:
                (lease.staging / "plan").mkdir()
                (lease.staging / "plan/a").write_bytes(payload(f"a{n}", 900))
                (lease.staging / "plan/b").write_bytes(payload("b", 700))
                (lease.staging / "empty").write_bytes(b"")
                lease.commit()
        bundles.create(cache, home / "good", sign=home / "key")
    return home


@pytest.fixture(scope="module")
def good(home: Path) -> bytes:
    return (home / "good").read_bytes()


def regions(raw: bytes) -> dict[str, range]:
    """Where each part of a bundle lies."""
    chunks, contents, signature = struct.unpack_from("<QQQ", raw, 16)
    ends = [0, HEAD_SIZE, HEAD_SIZE + chunks, HEAD_SIZE + chunks + contents, len(raw)]
    assert ends[-1] - ends[-2] == signature > 0
    spans = itertools.pairwise(ends)
    return {name: range(*span) for name, span in zip(REGIONS, spans, strict=True)}


def refused(home: Path, raw: bytes, *, errors: Any = REFUSED) -> None:
    """Nothing that reads bundles takes ``raw``, and nothing of it is installed."""
    bad, layer = home / "bad", home / "layer"
    bad.write_bytes(raw)
    with pytest.raises(errors):
        bundles.verify(bad)
    with pytest.raises(errors):
        bundles.install(bad, layer, trust=[home / "key.pub"])
    if layer.exists():
        assert files_below(layer) <= {"lock"}


def test_the_good_one_is_taken(home: Path) -> None:
    assert len(bundles.verify(home / "good").entries) == 2
    bundles.install(home / "good", home / "sound", trust=[home / "key.pub"])


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_anywhere_is_refused(home: Path, good: bytes, region: str) -> None:
    rng = random.Random(region)
    where = list(regions(good)[region])
    for at in where if len(where) < 200 else rng.sample(where, 150):
        raw = bytearray(good)
        raw[at] ^= 1 << rng.randrange(8)
        refused(home, bytes(raw))


@pytest.mark.parametrize("region", REGIONS)
def test_a_cut_anywhere_is_refused(home: Path, good: bytes, region: str) -> None:
    where = regions(good)[region]
    for at in [*random.Random(region).sample(where, min(40, len(where))), where.start]:
        refused(home, good[:at])


@pytest.mark.parametrize("region", REGIONS)
def test_bytes_put_in_or_taken_out_are_refused(home: Path, good: bytes, region: str) -> None:
    rng = random.Random(region)
    for at in rng.sample(regions(good)[region], 20):
        refused(home, good[:at] + bytes([rng.randrange(256)]) + good[at:])
        refused(home, good[:at] + good[at + 1 :])
    refused(home, good + b"\0")


def test_parts_of_two_bundles_don_t_mix(home: Path, good: bytes) -> None:
    with Cache.open(home / "cache", strict=True) as cache:
        entries = [each for each in bundles.choose(cache) if each.key["n"] == 0]
        bundles.create(cache, home / "other", entries, sign=home / "key")
    other = (home / "other").read_bytes()
    mine, theirs = regions(good), regions(other)
    for name in REGIONS[1:]:
        parts = {each: good[mine[each].start : mine[each].stop] for each in REGIONS}
        parts[name] = other[theirs[name].start : theirs[name].stop]
        sizes = struct.pack("<QQQ", *(len(parts[each]) for each in REGIONS[1:]))
        parts["head"] = good[:16] + sizes + good[40:HEAD_SIZE]
        refused(home, b"".join(parts[each] for each in REGIONS))


# -- contents that fit their digest, made to do harm ----------------------------------------------


def manifest(*files: tuple[str, bytes]) -> bytes:
    return msgspec.msgpack.encode(
        {
            "files": [
                {"name": name, "size": len(data), "blake3": blake3(data).digest()}
                for name, data in files
            ]
        }
    )


def entry(n: int, body: bytes, **facts: Any) -> bytes:
    key = plan_key(n)
    facts = {"codec": "files/1", "created": 1.0, **facts}
    return seal(key.canonical, Descriptor(**facts), body)


def build(records: list[list[Any]], pieces: list[bytes], **changes: Any) -> bytes:
    """A bundle of these chunks; ``records`` are digest, sealed, files."""
    lengths = changes.get("lengths", [len(each) for each in pieces])
    digests = b"".join(blake3(each).digest() for each in pieces)
    contents = msgspec.msgpack.encode([lengths, digests, records])
    chunks = b"".join(pieces)
    head = MAGIC + struct.pack(
        "<HHIQQQ32s", 1, 0, 0, len(chunks), len(contents), 0, blake3(contents).digest()
    )
    return head + chunks + contents


def artifact(body: bytes, *files: bytes, n: int = 0, **facts: Any) -> bytes:
    """A bundle of one artifact: its manifest as it is said to be, and the files' bytes."""
    sealed = entry(n, body, **facts)
    blobs = [[1 + i] for i in range(len(files))]
    return build([[plan_key(n).digest, [0], blobs]], [sealed, *files])


def hostile() -> Iterator[tuple[str, bytes]]:
    one, two = b"one", b"twotwo"
    for name in ("../x", "/etc/x", "a/../../x", "a//b", ".", "a\0b", "a\\b", "", "a" * 300):
        yield f"the name {name[:9]!r}", artifact(manifest((name, one)), one)
    yield "a name twice", artifact(manifest(("a", one), ("a", two)), one, two)
    yield "a file inside a file", artifact(manifest(("a", one), ("a/b", two)), one, two)
    yield "names that are not sorted", artifact(manifest(("b", one), ("a", two)), one, two)
    yield "too few files", artifact(manifest(("a", one), ("b", two)), one)
    yield "too many files", artifact(manifest(("a", one)), one, two)
    yield "a file of other content", artifact(manifest(("a", b"xxx")), one)
    yield "a file of another length", artifact(manifest(("a", two)), one)
    yield "no manifest", artifact(b"\xc1")
    yield "a manifest that is no map", artifact(msgspec.msgpack.encode([1, 2]))
    yield "files of a value", artifact(b"", one, codec="bytes/1")
    yield "epochs", artifact(manifest(("a", one)), one, tags={"release=1": 5})
    yield "shared epochs", artifact(manifest(("a", one)), one, shared={"t": 1})
    from trivet.entries import Failure

    yield "a recorded failure", artifact(b"", codec="failure/1", failure=Failure("E", "no"))
    sealed = entry(0, manifest(("a", one)))
    key = plan_key(0).digest
    yield "another digest", build([[plan_key(1).digest, [0], [[1]]]], [sealed, one])
    yield "an entry twice", build([[key, [0], [[1]]], [key, [0], [[1]]]], [sealed, one])
    yield "a chunk that is not there", build([[key, [0], [[7]]]], [sealed, one])
    yield "a chunk before the first", build([[key, [0], [[-1]]]], [sealed, one])
    yield "a chunk twice", build([[key, [0], [[1, 2]]]], [sealed, one, one])
    yield "a chunk for nobody", build([[key, [0], [[1]]]], [sealed, one, two])
    yield (
        "chunks longer than the file",
        build([[key, [0], [[1]]]], [sealed, one], lengths=[len(sealed), 1 << 19]),
    )
    yield "a chunk of no length", build([[key, [0], [[1]]]], [sealed, b""])
    yield "a huge chunk", build([[key, [0], [[1]]]], [sealed, bytes((1 << 20) + 1)])
    yield "an entry larger than memory", build([[key, [0] * 70, []]], [bytes(1 << 20)])
    yield "text instead of numbers", build([[key, ["0"], [["1"]]]], [sealed, one])
    yield "an entry that is not sealed", build([[key, [0], []]], [b"not sealed"])
    yield "more than is known", build([[key, [0], [[1]], "more"]], [sealed, one])
    broken = bytearray(sealed)
    broken[-1] ^= 1
    yield "a sealed entry that is damaged", build([[key, [0], [[1]]]], [bytes(broken), one])
    other = seal(b"no key", Descriptor(codec="bytes/1", created=1.0), b"")
    yield "a key that is none", build([[blake3(b"no key").digest(), [0], []]], [other])


HOSTILE = dict(hostile())


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_contents_are_refused(home: Path, what: str) -> None:
    bad, layer = home / "bad", home / "outer" / "layer"
    bad.write_bytes(HOSTILE[what])
    before = files_below(home)
    with pytest.raises(REFUSED):
        bundles.verify(bad)
    with pytest.raises(REFUSED):
        bundles.install(bad, layer, allow_unsigned=True)
    assert files_below(home) - before <= {"outer/layer/lock"}


def test_the_harmless_one_made_alike_is_taken(home: Path) -> None:
    one = b"one"
    (home / "fine").write_bytes(artifact(manifest(("a", one)), one, tags={"release=1": 0}))
    bundles.install(home / "fine", home / "fine layer", allow_unsigned=True)


# -- small files that would keep a reader busy ----------------------------------------------------


def one_file(times: int, piece: bytes) -> bytes:
    """A bundle of one file, of one chunk that is named again and again."""
    record = {"name": "a", "size": len(piece) * times, "blake3": bytes(32)}
    sealed = entry(0, msgspec.msgpack.encode({"files": [record]}))
    return build([[plan_key(0).digest, [0], [[1] * times]]], [sealed, piece])


def many_entries(count: int) -> bytes:
    """A bundle of entries with keys of their own and one payload."""
    payload = bytes(1 << 20)
    pieces, records = [payload], []
    for n in range(count):
        sealed = entry(n, payload * 8, codec="bytes/1")
        pieces.append(sealed[: -8 * len(payload)])
        records.append([plan_key(n).digest, [n + 1, *[0] * 8], []])
    # In the order in which they are named.
    records.sort()
    order = [records[0][1][0], 0, *(each[1][0] for each in records[1:])]
    numbers = {old: new for new, old in enumerate(order)}
    records = [[digest, [numbers[each] for each in blob], files] for digest, blob, files in records]
    return build(records, [pieces[each] for each in order])


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often, and how much, was read of bundles."""
    counts = {"reads": 0, "bytes": 0}
    real = Bundle._read

    def counted(self: Bundle, at: int, size: int) -> bytes:
        counts["reads"] += 1
        counts["bytes"] += size
        return real(self, at, size)

    monkeypatch.setattr(Bundle, "_read", counted)
    return counts


@pytest.mark.parametrize(
    ("what", "raw"),
    [
        ("4 TB of one chunk", lambda: one_file(4_000_000, bytes(1 << 20))),
        ("2 GB of one chunk", lambda: one_file(2_000, bytes(1 << 20))),
        ("a chunk of one byte, named a million times", lambda: one_file(1_000_000, b"x")),
        ("entries that share all they hold", lambda: many_entries(60)),
    ],
)
def test_a_small_file_makes_little_work(
    home: Path, work: dict[str, int], what: str, raw: Callable[[], bytes]
) -> None:
    bad = home / "bomb"
    bad.write_bytes(raw())
    for read in (
        lambda: bundles.verify(bad),
        lambda: bundles.verify(bad, trust=[home / "key.pub"], required=False),
        lambda: bundles.install(bad, home / "bombed", allow_unsigned=True),
    ):
        with pytest.raises((bundles.Untrusted, CorruptEntry)):
            read()
    assert not (home / "bombed").exists()
    assert work["reads"] < 20
    assert work["bytes"] < 4 * bad.stat().st_size


def test_files_that_share_a_lot_are_taken_of_anybody(home: Path, tmp_path: Path) -> None:
    piece = payload("shared", 50_000)
    with Cache.open(tmp_path / "cache", strict=True) as cache:
        keep(cache, plan_key(0), {f"{n}": piece for n in range(500)})
        bundles.create(cache, home / "dense")
    assert (home / "dense").stat().st_size < 200_000
    assert bundles.verify(home / "dense").unpacked > 25_000_000


def test_of_a_writer_who_is_trusted_only_the_room_counts(home: Path) -> None:
    raw = bytearray(one_file(4_000_000, bytes(1 << 20)))
    signature = SigningKey.read(home / "key").sign(bytes(raw[40:HEAD_SIZE])).encode()
    raw[32:40] = struct.pack("<Q", len(signature))
    (home / "bomb").write_bytes(raw + signature)
    with pytest.raises(StoreError, match="are free"):
        bundles.install(home / "bomb", home / "bombed", trust=[home / "key.pub"])
    assert files_below(home / "bombed") <= {"lock"}
    with pytest.raises(bundles.Untrusted, match="trusted here"):
        bundles.verify(home / "bomb")


def test_a_manifest_of_deep_names_makes_little_work() -> None:
    deep = "/".join("a" * 512)
    with pytest.raises(CorruptEntry, match="can't hold the name"):
        Manifest((FileRecord(deep, 0, bytes(32)),))
    Manifest((FileRecord("/".join("a" * 64), 0, bytes(32)),))


def test_many_changes_are_found_one_by_one(home: Path, tmp_path: Path) -> None:
    """By their keys: not by looking through all for each."""
    with Cache.open(tmp_path / "cache", strict=True) as cache:
        for n in range(40):
            keep(cache, plan_key(n), {"a": b"%d" % n})
        bundles.create(cache, home / "many")
        entries = bundles.choose(cache)
        bundles.create(cache, home / "few", entries[:1])
    looked = 0

    class Counted(tuple[EntryRecord, ...]):
        def __iter__(self) -> Iterator[EntryRecord]:
            nonlocal looked
            for each in super().__iter__():
                looked += 1
                yield each

    with Bundle.open(home / "few") as before, Bundle.open(home / "many") as after:
        entries_of_after = Counted(after.contents.entries)
        after.contents = msgspec.structs.replace(after.contents, entries=entries_of_after)
        looked = 0
        assert len(compare(before, after).added) == 39
    assert looked <= 3 * 40


def test_random_bytes_are_no_bundle(home: Path) -> None:
    rng = random.Random(5)
    for size in (0, 1, 8, 71, 72, 73, 500, 5000):
        refused(home, rng.randbytes(size))
        refused(home, (MAGIC + struct.pack("<H", 1) + rng.randbytes(size))[: max(size, 8)])


def test_lengths_beyond_the_file_are_refused_before_they_are_read(home: Path) -> None:
    for lengths in ((1 << 63, 0, 0), (0, 1 << 40, 0), (0, 0, 1 << 40), (2**64 - 1, 73, 0)):
        head = MAGIC + struct.pack("<HHIQQQ32s", 1, 0, 0, *lengths, bytes(32))
        refused(home, head)


@pytest.mark.parametrize("name", ["contents", "signature", "entries", "files"])
def test_a_flipped_bit_in_a_layer_is_found(home: Path, name: str, tmp_path: Path) -> None:
    done = bundles.install(home / "good", tmp_path / "layer", trust=[home / "key.pub"])
    folder = tmp_path / "layer" / "bundles" / done.id / name
    rng = random.Random(name)
    for file in [folder] if folder.is_file() else [x for x in folder.rglob("*") if x.is_file()]:
        raw = file.read_bytes()
        for _ in range(20 if raw else 0):
            at = rng.randrange(len(raw))
            file.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :])
            if folder.is_file():
                with pytest.raises(REFUSED):
                    bundles.verify_layer(tmp_path / "layer")
            else:
                found = bundles.verify_layer(tmp_path / "layer")
                assert sum(each.problem is not None for each in found) == 1
        file.write_bytes(raw + b"x")
        if folder.is_dir():
            assert sum(x.problem is not None for x in bundles.verify_layer(tmp_path / "layer")) == 1
        file.write_bytes(raw)
    assert all(each.problem is None for each in bundles.verify_layer(tmp_path / "layer"))
