"""Converts a model of another library to ONNX; runs in the Python that its owner names.

The argument is a JSON object: `kind`, `model`, `validation` (or null), `target`, `trusted`, `task` (or null), `sample` (or null).
"""

import json
import os
import sys
import threading
import warnings
from pathlib import Path

from . import say


def end_with_the_command():
    """Ends when the command does, however that happens: its end of the standard input is closed then."""

    def watch():
        while sys.stdin.buffer.raw.read(1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run(what):
    """Converts; each library is imported where it is used alone."""
    kind = what["kind"]
    if kind == "pickle":
        from . import estimators as converter
    elif kind in ("torch_script", "exported_program", "torch_module"):
        from . import pytorch as converter
    elif kind == "hugging_face":
        from . import hugging_face as converter
    else:
        from . import keras_and_tensorflow as converter
    converter.convert(what)


def main():
    end_with_the_command()
    what = json.loads(sys.argv[1])
    what["model"], what["target"] = Path(what["model"]), Path(what["target"])
    what["validation"] = Path(what["validation"]) if what.get("validation") else None
    if what["trusted"]:
        # Classes of a pickle may be those of a file here; packages that are installed come first.
        sys.path.append(os.getcwd())
    warnings.simplefilter("ignore")
    run(what)
