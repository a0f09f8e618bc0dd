"""Programs that PyPI has, in the environment that bench/install makes."""

import os
import shutil
from pathlib import Path

ENVIRONMENT = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "bench" / "python"


def program(name, within=""):
    """Where it is: in a package's directory, in the environment, or on PATH. None: nowhere."""
    packaged = sorted(ENVIRONMENT.glob(f"lib/python3*/site-packages/{within}{name}")) if within else []
    made = ENVIRONMENT / "bin" / name
    return str(packaged[0].resolve()) if packaged else str(made.resolve()) if made.exists() else shutil.which(name)
