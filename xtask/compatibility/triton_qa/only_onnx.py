"""Runs a test of Triton's QA as it is, without the kinds of models that ONNX has nothing of: ensembles, TensorRT, libtorch.

    python only_onnx.py TEST.py [ARGUMENT ..]

`infer_test.py` has variables of the environment for that, the others have not.
"""

import runpy
import sys

sys.path.insert(0, "../common")

import test_util

for kind in ("ensemble", "trt", "libtorch"):
    setattr(test_util, f"validate_for_{kind}_model", lambda *_, **__: False)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
