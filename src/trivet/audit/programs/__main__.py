"""``python -m trivet.audit.programs MODULE:FUNCTION ARGUMENTS``, the latter as JSON."""

from __future__ import annotations

import importlib
import resource
import sys

import msgspec

from trivet.audit.child import serve

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is a result, and leaves no file
_module, _, _function = sys.argv[1].partition(":")
_program = importlib.import_module(f"trivet.audit.programs.{_module}")
serve({"function": _function, "arguments": msgspec.json.decode(sys.argv[2])}, vars(_program))
