"""``trivet bundle`` with real plans: made on one host, hit on another without compiling."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import onnx_models
from tests.support.cli import COMMAND, Done, environment, trivet
from tests.support.disks import reachable

ROOT = Path(__file__).parents[2]
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SHAPES = ("--shapes", "x=N{1,4,8}x16")
TOY = """
import os
from pathlib import Path
kept = Path(os.environ["TOY_CACHE"]) / "code"
print("hit" if kept.exists() else "miss")
kept.write_text("compiled")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a signing key, the cache of host A, and a bundle of its three plans."""
    home = tmp_path_factory.mktemp("made")
    hosts = Hosts(home)
    onnx_models.save(onnx_models.dynamic_batch(), hosts.model)
    assert hosts.a("bundle", "keygen", hosts.key).code == 0
    for release, shapes in (("1", "x=N{1,4}x16"), ("2", "x=N{1,4,8}x16")):
        warmed = hosts.a("warm", hosts.model, "--shapes", shapes, "--release", release)
        assert warmed.code == 0, warmed.err
    done = hosts.a("bundle", "create", hosts.bundle, "--sign", hosts.key, "--json")
    assert done.json()["entries"] == 3
    return home


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    shutil.copytree(made, tmp_path / "home")
    return Hosts(tmp_path / "home")


class Hosts:
    """Host A, where plans were made and bundled, and host B with a layer."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model, self.key = home / "net.onnx", home / "ci.key"
        self.bundle, self.layer = home / "all.trivet", home / "layer"

    def a(self, *arguments: object) -> Done:
        return trivet(self.home / "a", *arguments)

    def b(self, *arguments: object, **more: str) -> Done:
        return trivet(self.home / "b", *arguments, **{"TRIVET_LAYERS": str(self.layer), **more})

    def install(self, *options: object) -> Done:
        trust = ("--trust", f"{self.key}.pub")
        return self.b("bundle", "install", self.bundle, self.layer, *trust, *options)

    def run(self, **more: str) -> Any:
        done = self.b("run", self.model, *SHAPES, "--json", **more)
        assert done.code == 0, done.err
        return done.json()


def test_another_host_hits_without_compiling(hosts: Hosts) -> None:
    assert hosts.install().code == 0
    ran = hosts.run()
    assert ran["source"] == "cache"
    assert "compile" not in ran["phases"]
    warmed = hosts.b("warm", hosts.model, *SHAPES, "--json").json()
    assert [each["result"] for each in warmed["variants"]] == ["cache"] * 3
    assert hosts.b("why", hosts.model, *SHAPES).code == 0
    rows = hosts.b("ls", "--json").json()["entries"]
    assert {row["layer"] for row in rows} == {str(hosts.layer)}
    figures = hosts.b("stats", "--json").json()
    assert figures["total"]["compiled"] == 0
    (layer,) = figures["layers"]
    assert (layer["root"], layer["entries"]) == (str(hosts.layer), 3)
    shown = hosts.b("show", rows[0]["digest"][:12], "--json").json()
    assert shown["layer"] == str(hosts.layer)
    assert shown["folder"].startswith(str(hosts.layer))


def test_what_the_bundle_lacks_is_compiled_on_demand_and_kept(hosts: Hosts) -> None:
    hosts.install()
    more = ("--shapes", "x=N{1,16}x16")
    results = [
        [
            each["result"]
            for each in hosts.b("warm", hosts.model, *more, "--json").json()["variants"]
        ]
        for _ in range(2)
    ]
    assert results == [["cache", "compiled"], ["cache", "cache"]]
    kept = hosts.b("ls", "--json").json()["entries"]
    assert sorted(bool(row["layer"]) for row in kept) == [False, True, True, True]


def test_without_a_folder_layers_alone_can_be_looked_at(hosts: Hosts) -> None:
    hosts.install()
    assert len(hosts.b("ls", "--json").json()["entries"]) == 3
    assert hosts.b("stats").code == 0
    assert not (hosts.home / "b").exists()


def test_the_same_plans_make_the_same_file_on_any_host(hosts: Hosts) -> None:
    hosts.install()
    hosts.run()
    again = hosts.home / "again.trivet"
    made = hosts.b("bundle", "create", again, "--sign", hosts.key)
    assert made.code == 0, made.err
    assert again.read_bytes() == hosts.bundle.read_bytes()
    assert (
        "0 added, 0 removed, 0 changed, 3 the same"
        in hosts.b("bundle", "diff", hosts.bundle, again).out
    )


# -- trust -----------------------------------------------------------------------------------------


def test_unknown_and_missing_signers_are_refused(hosts: Hosts) -> None:
    refused = hosts.b("bundle", "install", hosts.bundle, hosts.layer, "--json")
    assert refused.code == 1
    assert refused.json()["error"]["type"] == "Untrusted"
    hosts.a("bundle", "create", hosts.home / "plain")
    for options, code in (
        ((), 1),
        (("--trust", f"{hosts.key}.pub"), 1),
        (("--allow-unsigned",), 0),
    ):
        done = hosts.b("bundle", "install", hosts.home / "plain", hosts.home / "l", *options)
        assert (done.code, done.err.count("not signed")) == (code, code), done.err


def test_trusted_writers_are_listed_in_the_cache_folder_or_the_environment(hosts: Hosts) -> None:
    public = Path(f"{hosts.key}.pub")
    install = ("bundle", "install", hosts.bundle)
    assert hosts.b(*install, hosts.home / "l1", TRIVET_TRUST=str(public)).code == 0
    (hosts.home / "b").mkdir(mode=0o700)
    (hosts.home / "b" / "trusted-writers").write_text(public.read_text())
    assert hosts.b(*install, hosts.home / "l2").code == 0
    found = hosts.b("bundle", "verify", hosts.bundle, "--json").json()
    assert (found["writer"], len(found["entries"])) == ("ci", 3)


def test_verify_says_what_is_damaged(hosts: Hosts) -> None:
    assert "nobody who is trusted" in hosts.b("bundle", "verify", hosts.bundle).out
    other = hosts.home / "other.key"
    hosts.a("bundle", "keygen", other)
    assert hosts.b("bundle", "verify", hosts.bundle, "--trust", f"{other}.pub").code == 1
    hosts.install()
    assert hosts.b("bundle", "verify", hosts.layer).code == 0
    victim = next(hosts.layer.glob("bundles/*/files/*/plan/*"))
    victim.write_bytes(victim.read_bytes() + b"x")
    broken = hosts.b("bundle", "verify", hosts.layer, "--json")
    assert broken.code == 1
    assert len(broken.json()["damaged"]) == 1
    raw = bytearray(hosts.bundle.read_bytes())
    raw[1000] ^= 1
    hosts.bundle.write_bytes(raw)
    assert "not what was written" in hosts.b("bundle", "verify", hosts.bundle).err


def test_a_damaged_layer_is_compiled_around(hosts: Hosts) -> None:
    hosts.install()
    for victim in hosts.layer.glob("bundles/*/files/*/plan/*"):
        victim.write_bytes(bytes(victim.stat().st_size))
    ran = hosts.run()
    assert (ran["source"], ran["reason"]) == ("compiled", "corrupt")
    assert hosts.run()["source"] == "cache"


# -- releases --------------------------------------------------------------------------------------


def test_a_roll_back_finds_its_plans_again(hosts: Hosts) -> None:
    first = hosts.home / "first.trivet"
    hosts.a("bundle", "create", first, "--release", "1", "--sign", hosts.key)
    trust = ("--trust", f"{hosts.key}.pub")
    two = ("--shapes", "x=N{1,4}x16")

    def compiled(*shapes: object, cache: str) -> int:
        warmed = trivet(
            hosts.home / cache,
            "warm",
            hosts.model,
            *shapes,
            "--json",
            TRIVET_LAYERS=str(hosts.layer),
        ).json()
        return sum(each["result"] == "compiled" for each in warmed["variants"])

    hosts.b("bundle", "install", first, hosts.layer, *trust)
    assert compiled(*two, cache="b1") == 0
    assert hosts.install("--replace").code == 0
    assert compiled(*SHAPES, cache="b2") == 0
    hosts.b("bundle", "install", first, hosts.layer, *trust, "--replace")
    assert (compiled(*two, cache="b3"), compiled(*SHAPES, cache="b3")) == (0, 1)


def test_what_is_dropped_stays_dropped(hosts: Hosts) -> None:
    hosts.install()
    assert hosts.run()["source"] == "cache"
    assert hosts.b("drop", "--tag", "release=1", "--yes").code == 0
    ran = hosts.run()
    assert (ran["source"], ran["reason"]) == ("compiled", "invalidated")
    states = [row["state"] for row in hosts.b("ls", "--json").json()["entries"]]
    assert sorted(states) == ["invalidated", "ok", "ok"]
    hosts.b("drop", "--all", "--yes")
    states = [row["state"] for row in hosts.b("ls", "--json").json()["entries"]]
    assert states == ["invalidated"] * 3
    said = hosts.b("doctor", "--json").json()
    (section,) = [each for each in said["sections"] if each["name"] == "layer"]
    assert [each["code"] for each in section["findings"]] == ["layer-hidden"]


def test_plans_are_chosen_by_model_and_backend(hosts: Hosts) -> None:
    other = onnx_models.save(onnx_models.mlp(seed=3), hosts.home / "other.onnx")
    hosts.a("warm", other)

    def entries(*options: object) -> int:
        made = hosts.a("bundle", "create", hosts.home / "x", "--json", *options)
        return int(made.json()["entries"]) if made.code == 0 else 0

    assert entries() == 4
    assert entries("--model", "other") == 1
    assert entries("--backend", "onnxruntime", "--release", "2") == 1
    assert entries("--backend", "openvino") == 0


def test_what_exec_kept_comes_along(hosts: Hosts) -> None:
    guarded = ("exec", "--folder", "TOY_CACHE", "--salt", "toy=1", "--", sys.executable, "-c", TOY)
    assert hosts.a(*guarded).out.split() == ["miss"]
    hosts.a("bundle", "create", hosts.bundle, "--sign", hosts.key, "--folders", "--release", "1")
    hosts.install()
    assert hosts.b(*guarded).out.split() == ["hit"]


# -- where it lies ---------------------------------------------------------------------------------


@contextmanager
def mounted_read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.needs("root")
def test_a_read_only_mount_of_anybody_s_files_will_do(hosts: Hosts) -> None:
    hosts.install()
    for each in [hosts.layer, *hosts.layer.rglob("*")]:
        os.chown(each, 12345, 54321)
        each.chmod(each.stat().st_mode | 0o020)  # as Kubernetes does for fsGroup
    assert hosts.run()["source"] == "compiled", "others could write to it"
    with mounted_read_only(hosts.layer):
        before = {each: each.stat().st_mtime_ns for each in hosts.layer.rglob("*")}
        assert (
            trivet(hosts.home / "c", "why", hosts.model, *SHAPES, "--layer", hosts.layer).code == 0
        )
        assert hosts.run(TRIVET_CACHE_DIR=str(hosts.home / "d"))["source"] == "cache"
        assert before == {each: each.stat().st_mtime_ns for each in hosts.layer.rglob("*")}


@pytest.mark.needs("root")
def test_a_volume_that_everybody_may_write_is_mounted_read_only(hosts: Hosts) -> None:
    """As in examples/deploy/kubernetes/init-container.yaml."""
    volume = hosts.home / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    hosts.layer = volume / "plans"
    refused = hosts.install()
    assert "could be replaced by anybody" in refused.err
    assert hosts.install("--private-volume").code == 0
    with mounted_read_only(volume):
        assert hosts.run()["source"] == "cache"


def test_the_service_of_the_examples_uses_the_layer(hosts: Hosts) -> None:
    hosts.install()
    for expected in ("cache", "compiled"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/deploy/serve.py")],
            check=True,
            capture_output=True,
            text=True,
            cwd=hosts.home,
            env={
                **environment(hosts.home / "b", PLANS=str(hosts.layer)),
                "XDG_CACHE_HOME": str(hosts.home / "cache"),
            },
        )
        assert done.stdout.splitlines()[-1] == f"from {expected}"
        trivet(hosts.home / "cache/trivet", "drop", "--all", "--yes", "--layer", hosts.layer)


@pytest.mark.needs("root")
def test_another_user_uses_what_root_installed(hosts: Hosts) -> None:
    with reachable() as home:
        model = onnx_models.save(onnx_models.dynamic_batch(), home / "net.onnx")
        model.chmod(0o644)
        layer = home / "layer"
        options = ("--trust", f"{hosts.key}.pub")
        assert hosts.b("bundle", "install", hosts.bundle, layer, *options).code == 0
        own = home / "cache"
        own.mkdir(mode=0o700)
        os.chown(own, NOBODY, NOBODY)
        done = subprocess.run(
            [*AS_NOBODY, COMMAND, "run", str(model), *SHAPES, "--json"],
            capture_output=True,
            text=True,
            cwd="/",
            env=environment(own, TRIVET_LAYERS=str(layer), HOME=str(own)),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert Done(0, done.stdout, "").json()["source"] == "cache"
