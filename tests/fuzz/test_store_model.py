"""Any order of operations, against a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.store_entries import artifact_is_whole, entry, files_below, publish

from trivet.stores import FileStore
from trivet.stores.host import INLINE_LIMIT, HostStore

NAMES = st.sampled_from("abcd")
SIZES = st.sampled_from((0, 100, INLINE_LIMIT - 300, INLINE_LIMIT + 1, 100_000))


class HostStoreMachine(RuleBasedStateMachine):
    """Values as sealed bytes, artifacts as sealed manifests, by digest."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = HostStore.open(self.folder / "c")
        self.model: dict[bytes, bytes] = {}
        self.artifacts: set[bytes] = set()
        self.uses_files: set[bytes] = set()
        self.epochs = dict.fromkeys("xyz", 0)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def forget(self, digest: bytes) -> bool:
        self.artifacts.discard(digest)
        self.uses_files.discard(digest)
        return self.model.pop(digest, None) is not None

    @rule(name=NAMES, size=SIZES)
    def write(self, name: str, size: int) -> None:
        digest, sealed = entry(name, size)
        self.store.write(digest, sealed)
        self.forget(digest)
        self.model[digest] = sealed
        if len(sealed) > INLINE_LIMIT:
            self.uses_files.add(digest)

    @rule(name=NAMES, size=st.integers(0, 5000))
    def publish(self, name: str, size: int) -> None:
        digest, _ = publish(self.store, name, {"f": size, "g/h": 10})
        found = self.store.artifact(digest)
        assert found is not None
        self.forget(digest)
        self.model[digest] = found[0]
        self.artifacts.add(digest)
        self.uses_files.add(digest)

    @rule(name=NAMES, durably=st.booleans())
    def remove(self, name: str, durably: bool) -> None:
        digest = entry(name)[0]
        remove = self.store.delete if durably else self.store.evict
        assert remove(digest) is self.forget(digest)

    @rule(name=NAMES)
    def quarantine(self, name: str) -> None:
        digest = entry(name)[0]
        assert (self.store.quarantine(digest, "model") is not None) is self.forget(digest)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        self.store.touch(entry(name)[0])

    @rule(tags=st.sets(st.sampled_from("xyz")))
    def raise_epochs(self, tags: set[str]) -> None:
        self.epochs |= {tag: self.epochs[tag] + 1 for tag in tags}
        assert self.store.raise_epochs(tags) == {tag: self.epochs[tag] for tag in tags}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = HostStore.open(self.folder / "c")

    @rule()
    def rebuild(self) -> None:
        for digest in set(self.model) - self.uses_files:
            self.forget(digest)
        assert self.store.rebuild() == len(self.model)

    @rule()
    def collect(self) -> None:
        self.store.gc()

    @rule()
    def clear(self) -> None:
        self.store.clear()
        for digest in list(self.model):
            self.forget(digest)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        store: FileStore = self.store
        for name in "abcd":
            digest = entry(name)[0]
            found = store.read(digest)
            assert (None if found is None else bytes(found)) == self.model.get(digest)
            artifact = store.artifact(digest)
            assert (artifact is not None) is (digest in self.artifacts)
            assert artifact is None or artifact_is_whole(*artifact)
        assert store.epochs("xyz") == self.epochs
        items = list(self.store.items())
        assert {each.digest for each in items} == set(self.model)
        stats = self.store.stats()
        assert (stats.entries, stats.size) == (len(items), sum(each.size for each in items))
        assert len(files_below(self.folder / "c")) == len(self.uses_files)


TestHostStoreAgainstADictionary = HostStoreMachine.TestCase
TestHostStoreAgainstADictionary.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
