"""`Plans`: compiled models, made once per host and verified at every load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from trivet import __version__, log
from trivet.cache import Artifact, Cache, Failed, Hit, Miss
from trivet.cache.coordinator import WAIT_SECONDS
from trivet.cache.validity import texts_of
from trivet.errors import BackendError, CorruptEntry, InvalidKey, ModelError
from trivet.events import MissReason
from trivet.keys import Key
from trivet.plans.activity import KEY_LIMIT, OUTSIDE, Activity, PlanUse
from trivet.plans.backend import Backend, BackendFacts, Executable, has_external_weights
from trivet.plans.errors import ModelChanged
from trivet.plans.graph import GraphMemo, unchanged
from trivet.plans.host import HostFacts, read_host
from trivet.plans.key import part, plan_key
from trivet.plans.loader import Loader
from trivet.plans.memo import CacheMemo
from trivet.plans.model import GraphId, backend_in_words
from trivet.plans.outcome import CanaryMode, Loaded, LoadOptions, OnFailure, Source, Target
from trivet.plans.plan import Plan
from trivet.plans.report import StartReport
from trivet.plans.shapes import BoundShapes, Shapes, Variant

if TYPE_CHECKING:
    from trivet.cache import Neighbour
    from trivet.plans.examine import Examination
    from trivet.plans.padding_check import PaddingCheck

_NO_RULES = Shapes()


class Lookup(msgspec.Struct, frozen=True):
    """One variant, the keys under which its plan may be stored, and what is.

    ``bound`` names this machine's instruction set, ``portable`` holds for all of the architecture.
    ``padding`` says what was found wrong with padding requests to a plan that is there.
    """

    variant: Variant
    bound: Key
    portable: Key
    found: Hit[Artifact] | Failed | Miss
    padding: str


class _Model(msgspec.Struct, frozen=True):
    """A model file, what it computes, and the shape rules, also as bound to it."""

    path: Path
    graph: GraphId
    rules: Shapes
    shapes: BoundShapes


class Plans:
    """Compiles models with one backend, and keeps what it compiled.

    Args:
        cache: where plans are kept.
        backend: compiles, loads and runs them.
        release: what is being rolled out, as the tag ``release=...``: `Cache.invalidate` on it
            drops the plans that this release made.
        tags: more dependency tags.
        on_failure: where a plan can't be made, run the model uncompiled or raise `PlanFailed`.
        canary: when to run a loaded plan's canary.
        key_limit: distinct variants of one model above which a warning is logged: keys that
            multiply mean that shapes don't converge.
        wait: seconds to wait for another process that compiles the same plan.
        failure_lifetime: seconds until a failed compile is tried again.
        environment: instead of the process's own environment.

    Raises `InvalidKey` when the release or a tag is not Unicode.
    """

    def __init__(
        self,
        cache: Cache,
        backend: Backend,
        *,
        release: str = "",
        tags: Iterable[str] = (),
        on_failure: OnFailure | Literal["fallback", "refuse"] = OnFailure.FALLBACK,
        canary: CanaryMode | Literal["first", "always", "never"] = CanaryMode.FIRST,
        key_limit: int = KEY_LIMIT,
        wait: float = WAIT_SECONDS,
        failure_lifetime: float = 24 * 3600.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._cache = cache
        self._backend = backend
        self._release = release
        self._tags = texts_of(tags)
        for each in (release, *self._tags):
            if not each.isascii():
                _require_unicode(each)
        self._options = LoadOptions(
            on_failure=OnFailure(on_failure),
            canary=CanaryMode(canary),
            wait=wait,
            failure_lifetime=failure_lifetime,
        )
        self._key_limit = key_limit
        self._environment = environment
        self._memo = CacheMemo(cache)
        self._identify = GraphMemo(self._memo, cache.clock).identify
        self._activity = None if cache.store is None else Activity(cache.store.root)
        self._seen: dict[bytes, set[bytes]] = {}

    def load(self, model: str | Path, shapes: Shapes | None = None) -> Plan:
        """The plan of ``model``, compiled if this host has none that may be used.

        With bucketed shapes, variants get ready when they are first needed; `Plan.prepare` gets all
        of them ready.

        Raises:
            ModelError: the file can't be read as a model.
            ShapeError: the rules don't fit the model, or padding changes its answers.
            MissingExtra: the backend's framework is not installed.
            PlanFailed: it can't be compiled and ``on_failure`` is "refuse".
            ModelChanged: its content keeps changing.
        """
        try:
            return self._loaded(model, shapes)
        except ModelChanged:  # replaced while it was compiled
            return self._loaded(model, shapes)

    def open(self, model: str | Path, shapes: Shapes | None = None) -> Plan:
        """`load` without getting any variant ready."""
        rules, report = shapes or _NO_RULES, StartReport()
        with report.phase("identify"):
            read = self._read(model, rules)
        load, uncompiled = partial(self._load, read), partial(self._uncompiled, read)
        told = partial(self._record_outside, read)
        return Plan(read.shapes, rules.outside, load, uncompiled, report, told)

    def keys(self, model: str | Path, shapes: Shapes | None = None) -> list[tuple[Variant, Key]]:
        """Every variant of ``model`` and the key under which its plan is looked up."""
        return [(variant, target.bound) for variant, target in self._targets(model, shapes)]

    def find(self, model: str | Path, shapes: Shapes | None = None) -> list[Lookup]:
        """What `load` would find for every variant: looked up and verified, nothing is loaded."""
        rules, found = shapes or _NO_RULES, []
        for variant, target in self._targets(model, rules):
            outcome = _verified(self._cache.get_files(target.bound, also=(target.portable,)))
            padding = ""
            if isinstance(outcome, Hit) and rules.check_padding:
                from trivet.plans.padding_check import recorded_verdict

                padding = recorded_verdict(
                    self._cache, outcome.value.key, rules, target.bound_weights
                )
            found.append(Lookup(variant, target.bound, target.portable, outcome, padding))
        return found

    def examination(self, model: str | Path, shapes: Shapes | None = None) -> Examination:
        """Tests of ``model`` with what is installed now, variant by variant: what a gate asks for.

        Raises `ModelError`, `ShapeError`, `MissingExtra` as `load` does.
        """
        from trivet.plans.examine import Examination  # no server needs it

        rules = shapes or _NO_RULES
        read = self._read(model, rules)
        return Examination(
            self._cache,
            self._backend,
            dict(self._targets(model, rules)),
            partial(self.open, model, rules),
            partial(self._uncompiled, read),
        )

    def why(self, key: Key) -> list[Neighbour]:
        """The stored plan nearest to ``key``, and the fields that differ.

        One of the same backend and graph if there is one, else of the same backend: a plan of
        another model may differ in fewer fields and yet explain nothing.
        """
        from trivet.cache.stored import neighbours  # nobody asks after a hit

        stored = list(self._cache.entries(key.space))
        for alike in (("backend", "name"), ("graph", "structure")):
            stored = [each for each in stored if _equal(each.key, key, alike)] or stored
        return neighbours(stored, key, 1)

    # -- inside --------------------------------------------------------------------------------

    def _loaded(self, model: str | Path, shapes: Shapes | None) -> Plan:
        plan = self.open(model, shapes)
        variants = plan.variants()
        if len(variants) == 1:
            plan.prepare(variants[0])
        return plan

    def _read(self, model: str | Path, rules: Shapes) -> _Model:
        path = Path(model)
        if not path.is_file():
            raise ModelError(f"there is no model file {path}")
        if not self._backend.accepts(path):
            raise BackendError(f"{self._backend.name} does not read files like {path.name!r}")
        graph = self._identify(path)
        return _Model(path, graph, rules, rules.bind(graph.inputs, graph.outputs))

    def _targets(
        self, model: str | Path, shapes: Shapes | None
    ) -> Iterator[tuple[Variant, Target]]:
        read = self._read(model, shapes or _NO_RULES)
        host, facts = self._facts()
        for variant in read.shapes.variants():
            yield variant, self._target(read, variant, host, facts)

    def _facts(self) -> tuple[HostFacts, BackendFacts]:
        environment = os.environ if self._environment is None else self._environment
        return read_host(environment), self._backend.facts(self._memo)

    def _load(self, model: _Model, variant: Variant, report: StartReport) -> Loaded:
        try:
            return self._load_once(model, variant, report)
        except ModelChanged:
            with report.phase("identify"):
                now = self._same_content(model)
            return self._load_once(now, variant, report)

    def _load_once(self, model: _Model, variant: Variant, report: StartReport) -> Loaded:
        with report.phase("key"):
            host, facts = self._facts()
            target = self._target(model, variant, host, facts)
        self._count_keys(target)
        loader = Loader(self._cache, self._backend, self._options, host)
        if model.rules.check_padding and model.shapes.smaller(variant):
            loaded = self._load_checked(model, variant, loader, target, report)
        else:
            loaded = loader.load(target, report)
        self._record(target, variant, loaded, report)
        return msgspec.structs.replace(loaded, phases=tuple(report.phases))

    def _load_checked(
        self, model: _Model, variant: Variant, loader: Loader, target: Target, report: StartReport
    ) -> Loaded:
        """Load a plan to which requests are padded. Raises `ShapeError` where answers show that."""
        check = self._padding_check(model)
        with contextlib.ExitStack() as stack:
            if not check.is_known(target.bound, target.portable):
                with report.phase("import"), contextlib.suppress(Exception):
                    self._backend.warm_import()  # what is wrong with it comes again
                turn = check.turn(variant, target.bound, target.portable, self._options.wait)
                with report.phase("padding"):
                    stack.enter_context(turn)
            loaded = loader.load(target, report)
            with report.phase("padding"):
                uncompiled = loaded.source is Source.UNCOMPILED
                check.require(loaded.executable, loaded.key, variant, uncompiled=uncompiled)
        return loaded

    def _padding_check(self, model: _Model) -> PaddingCheck:
        from trivet.plans.padding_check import PaddingCheck

        return PaddingCheck(
            self._cache,
            model.rules,
            model.shapes,
            model.graph.operators,
            self._backend.tolerance(),
            partial(self._uncompiled, model),
            weights=self._bound_weights(model.graph),
        )

    def _bound_weights(self, graph: GraphId) -> bytes:
        return graph.weights if has_external_weights(self._backend) else b""

    def _uncompiled(self, model: _Model) -> Executable:
        executable = self._backend.fallback(model.path, {})
        self._same_content(model)
        return executable

    def _same_content(self, model: _Model) -> _Model:
        """``model`` as its files are now. Raises `ModelChanged` when they hold something else.

        A plan stands for one content: a variant that is made later must not have other weights
        than those that are in use.
        """
        before = model.graph
        if unchanged(before):
            return model
        now = self._identify(model.path)
        if (now.structure, now.weights, now.metadata) != (
            before.structure,
            before.weights,
            before.metadata,
        ):
            raise ModelChanged(
                f"{model.path} is not the model any more that this plan was opened for",
                hint="load it again",
            )
        return msgspec.structs.replace(model, graph=now)

    def _target(
        self, model: _Model, variant: Variant, host: HostFacts, facts: BackendFacts
    ) -> Target:
        backend, graph = self._backend, model.graph
        fields = backend.key_fields(host)
        signature = model.shapes.signature(variant)

        def key(portable: bool) -> Key:
            return plan_key(
                graph,
                signature,
                backend.name,
                facts,
                fields,
                host,
                portable=portable,
                external_weights=has_external_weights(backend),
            )

        build = "-".join(backend_in_words(backend.name, facts.version).split())
        tags = [f"backend={build}", f"graph={graph.structure.hex()[:16]}", *self._tags]
        if self._release:
            tags.append(f"release={self._release}")
        return Target(
            model=model.path,
            graph=graph,
            bound_weights=self._bound_weights(graph),
            shapes=variant.shapes,
            bound=key(False),
            portable=key(True),
            keepable=not host.instruction_set_unknown,
            key_now=lambda: self._target(model, variant, *self._facts()).bound,
            tags=tuple(dict.fromkeys(tags)),
            group=f"{self._release}:{build}/{graph.structure.hex()[:16]}",
        )

    def _count_keys(self, target: Target) -> None:
        seen = self._seen.setdefault(target.graph.structure, set())
        seen.add(target.bound.digest)
        if len(seen) == self._key_limit + 1:
            log.warning(
                "%s has been loaded in more than %d variants by this process; its shapes don't "
                "converge. Bucket the axes that vary, or leave them free.",
                target.model.name,
                self._key_limit,
            )

    def _record(
        self, target: Target, variant: Variant, loaded: Loaded, report: StartReport
    ) -> None:
        if self._activity is None:
            return
        self._activity.append(
            PlanUse(
                time=self._cache.clock.time(),
                model=target.model.name,
                graph=target.graph.structure.hex()[:16],
                backend=self._backend.name,
                bucket=str(variant),
                source=loaded.source,
                key=loaded.key.digest.hex(),
                reason=loaded.reason,
                error=loaded.error,
                release=self._release,
                trivet=__version__,
                seconds=report.wall_ms / 1e3,
                compile_seconds=report.ms("compile") / 1e3,
            )
        )

    def _record_outside(self, model: _Model, shapes: str, why: str) -> None:
        if self._activity is None:
            return
        self._activity.append(
            PlanUse(
                time=self._cache.clock.time(),
                model=model.path.name,
                graph=model.graph.structure.hex()[:16],
                backend=self._backend.name,
                bucket=shapes,
                source=OUTSIDE,
                key="",
                error=why,
                release=self._release,
                trivet=__version__,
            )
        )


def _equal(one: Key, other: Key, path: tuple[str, str]) -> bool:
    return bool(part(one, *path) == part(other, *path))


def _verified(found: Hit[Artifact] | Failed | Miss) -> Hit[Artifact] | Failed | Miss:
    if isinstance(found, Hit):
        try:
            found.value.verify()
        except CorruptEntry as error:
            return Miss(MissReason.CORRUPT, error.message)
    return found


def _require_unicode(tag: str) -> None:
    try:
        tag.encode()
    except UnicodeEncodeError as error:
        raise InvalidKey(f"the tag {tag!r} is not Unicode") from error
