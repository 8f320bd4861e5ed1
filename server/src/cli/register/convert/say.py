"""What the conversion tells the command that started it: one JSON object a line.

`converter` (with `version`) is who converts, `did` and `note` are told to the user, `missing` names the packages that are not there, and
`refused` says why the model cannot be converted.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys

REFUSED = 3
# Packages that are called otherwise than their modules.
PACKAGES = {"sklearn": "scikit-learn", "optimum": "optimum-onnx", "google": "protobuf", "cv2": "opencv-python"}

_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
# What libraries print is no message.
os.dup2(2, 1)


def tell(**what):
    print(json.dumps(what), file=_OUT, flush=True)


def stop(**why):
    tell(**why)
    sys.exit(REFUSED)


def refuse(text):
    stop(refused=text)


def need(module):
    """A module, or the end with the name of the package that is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        return lack(error)


def require(*modules, besides=()):
    """The end with all that is missing, where one of the modules is; `besides` are packages that will be needed then."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        missing += [module for module in besides if importlib.util.find_spec(module) is None]
        stop(missing=" ".join(PACKAGES.get(module, module) for module in missing))


def lack(error):
    """Names the package of the module that is missing, which another may need without saying so."""
    module = (error.name or "").split(".")[0]
    if not module:
        raise error
    return stop(missing=PACKAGES.get(module, module))


def has(module):
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def converter(package):
    """Names who converts, before it begins."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    tell(converter=package, version=version)


def first_line(error):
    """What an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
