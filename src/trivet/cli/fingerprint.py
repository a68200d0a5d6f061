"""``trivet fingerprint``: what of this machine and installation is in the keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from trivet.cli.app import command
from trivet.cli.opening import open_cache
from trivet.cli.options import AsJson, CacheDir
from trivet.cli.output import Column, Output
from trivet.cli.words import difference_in_words
from trivet.errors import MissingExtra, TrivetError
from trivet.plans.backends.named import BackendName, make_backend
from trivet.warm.plain import plain

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.plans.memo import Memo


@command
def fingerprint(
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Print what this host contributes to the keys of plans and folders.

    Always prints one JSON document. Write it to a file on one host, and run 'trivet why --against
    FILE' on another to see where the two differ. It has no models, shapes or options.
    """
    with open_cache(cache_dir) as cache:
        Output(json=True).document(read_fingerprint(cache))


def read_fingerprint(cache: Cache) -> dict[str, Any]:
    """This host's facts, by part: ``host``, ``backends``, ``folders``."""
    from trivet.plans.folders import KNOWN, interpreter_of
    from trivet.plans.folders.fingerprint import folder_key, present
    from trivet.plans.host import read_host
    from trivet.plans.memo import CacheMemo

    host = read_host(os.environ)
    memo: Memo = CacheMemo(cache)
    interpreter = interpreter_of([sys.executable], os.environ)
    folders: dict[str, Any] = {}
    for framework in KNOWN:
        if interpreter is not None and present(framework, interpreter):
            try:
                key = folder_key(framework, interpreter, host, {}, {}, memo)
            except TrivetError as error:
                folders[framework.name] = f"unknown: {error.message}"
            else:
                folders[framework.name] = {name: key[name] for name in key}
    backends: dict[str, Any] = {}
    for name in BackendName:
        backend = make_backend(Path(), name, {})
        try:
            facts = backend.facts(memo)
            backends[backend.name] = {"facts": facts, "fields": backend.key_fields(host)}
        except MissingExtra:
            continue
        except TrivetError as error:
            backends[backend.name] = f"unknown: {error.message}"
    return {
        "host": {
            "system": host.system,
            "machine": host.machine,
            "libc": host.libc,
            "instruction_set": host.instruction_set or host.instruction_set_unknown,
        },
        "backends": backends,
        "folders": folders,
    }


def compare(out: Output, cache: Cache, file: Path) -> bool:
    """Say in which fields this host differs from the one that ``file`` is of; True for none."""
    from trivet.keys import Key

    try:
        theirs = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise typer.BadParameter(
            f"{file} is not what 'trivet fingerprint' prints: {error}", param_hint="--against"
        ) from None
    # Through JSON as well, so that what is equal looks equal.
    mine = msgspec.json.decode(msgspec.json.encode(plain(read_fingerprint(cache))))
    found = Key("fingerprint/1", mine).diff(Key("fingerprint/1", theirs))
    rows = [(each.name, *difference_in_words(each)) for each in found]
    if out.json:
        names = ("field", "here", "there")
        told = [dict(zip(names, each, strict=True)) for each in rows]
        out.document({"same": not rows, "differences": told})
    elif not rows:
        out.line("no difference: what one host keeps, the other one can use")
    else:
        out.table([Column(each, fold=True) for each in ("field", "here", "there")], rows)
    return not rows
