"""Call the installed commands of the Python that runs this tool.

Invariant: the commands are those beside ``sys.executable``, not others on the PATH.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_json", "show", "show_line"]


def run_json(command: str, *arguments: str) -> dict[str, Any]:
    """Return what ``command --json`` printed; raises CalledProcessError when it failed."""
    done = subprocess.run([_path(command), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, end="", file=sys.stderr)
        done.check_returncode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def show(command: str, *arguments: str) -> None:
    """Print a command line as a user would type it, then run it; raises CalledProcessError."""
    print(f"$ {shlex.join([command, *arguments])}", flush=True)
    subprocess.run([_path(command), *arguments], check=True)


def show_line(line: str) -> None:
    """Print a line for the shell, pipes included, then run it; raises CalledProcessError."""
    print(f"$ {line}", flush=True)
    here = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(line, shell=True, env=environment, check=True)


def _path(command: str) -> str:
    return str(Path(sys.executable).with_name(command))
