"""Runs the real entry point in its own process on a scripted runtime.

Usage: python launcher.py JSON ARGUMENTS...; JSON lists the answers, as fields of Answer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from mlx_diffusiongemma.cli import app, session
from tests.cli.fake_runtime import Answer, FakeRuntime

runtime: Any = FakeRuntime([Answer(**answer) for answer in json.loads(sys.argv[1])])
session.open_runtime = lambda model, revision, dtype: runtime
sys.argv = ["dgemma", *sys.argv[2:]]
app.main()
