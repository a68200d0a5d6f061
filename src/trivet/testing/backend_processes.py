"""What `BackendContract` does with a backend, here and in new processes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trivet.keys import Key
from trivet.plans.backend import Backend, Executable, has_external_weights
from trivet.plans.graph import identify
from trivet.plans.host import read_host


def new_process(
    work: Callable[[dict[str, Any]], object], task: Mapping[str, object], **environment: str
) -> Any:
    """Call one of the functions below in a new interpreter; returns what it returned."""
    name = work.__name__
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import {name}, answer; answer({name})"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def answer(work: Callable[[dict[str, Any]], object]) -> None:
    """In the new interpreter."""
    print(json.dumps(work(json.load(sys.stdin))))


def make(task: Mapping[str, Any]) -> Backend:
    """The backend that a contract says how to make."""
    module, _, name = task["factory"].partition(":")
    backend: Backend = getattr(importlib.import_module(module), name)(**task["options"])
    return backend


def facts_work(task: dict[str, Any]) -> object:
    """The facts, and whether asking what is asked before a compile imports the framework."""
    backend = make(task)
    facts = backend.facts()
    backend.key_fields(read_host(os.environ))
    backend.lint()
    return {"facts": msgspec.to_builtins(facts), "imported": task["framework"] in sys.modules}


def key_work(task: dict[str, Any]) -> object:
    """The digest of `fields_key`."""
    return fields_key(make(task)).digest.hex()


def load_work(task: dict[str, Any]) -> object:
    """Load each folder and run it; gives the error's class where loading or running raises."""
    import numpy as np

    backend = make(task)
    answers = []
    for folder in task["folders"]:
        try:
            plan = load(backend, Path(folder), task["detail"], Path(task["model"]))
            outputs = plan.run(dict(np.load(task["inputs"])))
        except Exception as error:  # noqa: BLE001  whatever it is, it must not be a crash
            answers.append(type(error).__name__)
        else:
            np.savez(Path(task["outputs"]), **outputs)  # type: ignore[arg-type]
            answers.append("")
    return answers


def load(backend: Backend, folder: Path, detail: Mapping[str, object], model: Path) -> Executable:
    """Load a plan, and bind the weights of ``model`` where it holds none itself."""
    executable = backend.load(folder, detail)
    if has_external_weights(backend):
        backend.bind(executable, model, identify(model))
    return executable


def fields_key(backend: Backend) -> Key:
    """A key of what the backend puts into keys."""
    return Key("contract/1", backend.key_fields(read_host({"HOME": "/somewhere"})))
