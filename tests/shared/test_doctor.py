"""The doctor looks at what hosts share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import Shell
from tests.support.servers import Valkey, ValkeyCluster

from trivet import Cache


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    Cache.open(tmp_path / "c", strict=True).close()
    return Shell(tmp_path / "c", capsys)


def section(shell: Shell, *urls: str, code: int = 0) -> tuple[str, dict[str, dict[str, str]]]:
    """The summary of the last url, and its findings by code."""
    done = shell("doctor", *(each for url in urls for each in ("--shared", url)), "--json")
    assert done.code == code, done
    found = [each for each in done.json()["sections"] if each["name"] == "shared"]
    assert len(found) == len(urls)
    return found[-1]["summary"], {each["code"]: each for each in found[-1]["findings"]}


def test_one_that_pushes_is_well(shell: Shell, valkey: str, s3: str) -> None:
    assert section(shell, s3, valkey) == (f"{valkey}: reached, changes are pushed", {})


def test_a_cluster_of_which_each_master_pushes_is_well(
    shell: Shell, cluster: ValkeyCluster
) -> None:
    assert section(shell, cluster.url) == (f"{cluster.url}: reached, changes are pushed", {})


def test_one_that_refuses_to_push_is_named_without_the_password(
    shell: Shell, own_valkey: Valkey
) -> None:
    import valkey

    with valkey.Valkey(port=own_valkey.port) as client:
        allowed = ("on", ">pw", "~*", "+@all", "-client|tracking")
        client.execute_command("ACL", "SETUSER", "poor", *allowed)
    summary, findings = section(shell, f"valkey://poor:pw@127.0.0.1:{own_valkey.port}/0")
    assert summary == f"valkey://…@127.0.0.1:{own_valkey.port}/0: reached"
    assert set(findings) == {"not-pushed"}
    assert "tracking" in findings["not-pushed"]["message"]
    assert "client|tracking" in findings["not-pushed"]["hint"]


def test_one_that_is_not_there_is_an_error(shell: Shell, own_valkey: Valkey) -> None:
    own_valkey.kill()
    summary, findings = section(shell, own_valkey.url, code=1)
    assert "can't be used" in summary
    assert findings["shared-unreachable"]["severity"] == "error"
