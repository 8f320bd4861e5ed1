"""Models of Keras and folders of TensorFlow: by Keras' own export, or by tf2onnx."""

import json
import os
import runpy
import sys

from . import compare, records, say

# Records that are compared.
MOST_ROWS = 8
# The length of an open dimension of which the validation set says nothing.
OPEN = 64
SIGNATURE = "serving_default"

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def convert(what):
    if what["kind"] == "saved_model":
        return from_saved_model(what)
    return from_keras(what)


def from_keras(what):
    say.require("keras", "onnx", besides=("tensorflow", "tf2onnx"))
    keras = say.need("keras")
    model = load(keras, what)
    backend = keras.backend.backend() if hasattr(keras, "backend") else "tensorflow"
    if backend == "torch":
        say.need("onnxscript")
        package = "torch"
    else:
        package = "tf2onnx"
        say.require("tensorflow", package)
    say.converter(package)
    found = inputs_of(what, [it.name for it in model.inputs])
    try:
        call(keras, model, found)
        model.export(str(what["target"]), format="onnx", verbose=False)
    except ModuleNotFoundError as error:
        say.lack(error)
    except Exception as error:
        say.refuse(f"Keras cannot write it as ONNX: {say.first_line(error)}")
    compare.rename(what["target"], [it.name for it in found])
    shown = compare.signature(what["target"])
    say.tell(did=f"a {type(model).__name__} of Keras {keras.__version__} was written as ONNX, with {shown}")
    check(found, lambda given: answers(model, given), "Keras", what)


def call(keras, model, found):
    """Calls it once: one that was only loaded is not exported."""
    by_name = {it.name: it for it in found}

    def sample(given):
        known = found[0] if len(found) == len(model.inputs) == 1 else by_name.get(given.name)
        shape = [length or OPEN for length in given.shape[1:]]
        shape = known.of(0).shape if known is not None and known.rank() == len(shape) else shape
        return keras.ops.zeros((1, *shape), dtype=given.dtype)

    samples = [sample(given) for given in model.inputs]
    model(samples[0] if len(samples) == 1 else samples)


def load(keras, what):
    try:
        refuse_lambdas(what)
        return keras.saving.load_model(str(what["model"]), compile=False, safe_mode=not what["trusted"])
    except Exception as error:
        text = say.first_line(error)
        if "safe_mode" in str(error) or "Lambda" in str(error):
            text = "it has a layer of Python code (`Lambda`), which is not run without `--trust`"
        return say.refuse(f"Keras {keras.__version__} does not load it: {text}")


def refuse_lambdas(what):
    """Keras before 3.11.3 runs the code in files of HDF5 even where it says that it is safe."""
    h5py = say.need("h5py")
    # The signature of HDF5 need not stand at the beginning of a file.
    if what["trusted"] or not h5py.is_hdf5(str(what["model"])):
        return
    with h5py.File(what["model"]) as file:
        config = file.attrs.get("model_config")
    if config is None:
        say.refuse("it holds weights alone, without the model that they belong to: save the model, `model.save(\"model.keras\")`")
    if has_code(json.loads(config)):
        say.refuse("it has a layer of Python code (`Lambda`), which is not run without `--trust`")


def has_code(config):
    """Whether a part of a configuration is Python code, however its name is escaped in the file."""
    if isinstance(config, dict):
        named = config.get("class_name") in ("Lambda", "__lambda__") or config.get("function_type") == "lambda"
        return named or any(has_code(part) for part in config.values())
    return isinstance(config, list) and any(has_code(part) for part in config)


def answers(model, given):
    """What a model of Keras answers, in the order of its outputs."""
    inputs = list(given.values())
    answer = model.predict(inputs[0] if len(inputs) == 1 else given, verbose=0)
    if isinstance(answer, dict):
        return list(answer.values())
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]


def from_saved_model(what):
    say.require("tensorflow", "tf2onnx", "onnx")
    tensorflow = say.need("tensorflow")
    say.converter("tf2onnx")
    signatures = tensorflow.saved_model.load(str(what["model"])).signatures
    if not signatures:
        say.refuse("it has no signature, which says what is asked: save it with `model.export(..)` of Keras, or with `signatures=`")
    name = SIGNATURE if SIGNATURE in signatures else sorted(signatures)[0]
    run_tf2onnx(what, name)
    found = inputs_of(what, compare.inputs(what["target"]))
    compare.rename(what["target"], [it.name for it in found])
    say.tell(did=f"the signature `{name}` of a SavedModel was written as ONNX, with {compare.signature(what['target'])}")
    function = signatures[name]
    called = list(function.structured_input_signature[1])

    def ask(given):
        named = dict(zip(called, given.values())) if len(called) == 1 else given
        own = {key: tensorflow.cast(value, function.structured_input_signature[1][key].dtype) for key, value in named.items()}
        answer = function(**own)
        return [answer[key].numpy() for key in compare.outputs(what["target"]) if key in answer]

    check(found, ask, "TensorFlow", what)


def run_tf2onnx(what, name):
    """Its program, in this process."""
    arguments = ["--saved-model", str(what["model"]), "--signature_def", name, "--tag", "serve", "--output", str(what["target"])]
    own, sys.argv = sys.argv, ["tf2onnx.convert", *arguments]
    try:
        runpy.run_module("tf2onnx.convert", run_name="__main__")
    except SystemExit as end:
        if end.code:
            say.refuse(f"tf2onnx cannot write it as ONNX: it ended with {end.code}")
    except Exception as error:
        say.refuse(f"tf2onnx cannot write it as ONNX: {say.first_line(error)}")
    finally:
        sys.argv = own


def inputs_of(what, names):
    """The inputs of the validation set; none where its form is read elsewhere, as images are."""
    found = records.read(what["validation"])
    if isinstance(found, records.Table):
        return found.inputs(names)
    return found or []


def check(found, ask, library, what):
    """Compares answers to the first records, where the validation set has all inputs by their names."""
    numpy = say.need("numpy")
    kinds = compare.kinds(what["target"])
    if not found or {it.name for it in found} != set(kinds):
        return say.tell(note=f"its answers were not compared with {library}'s own: the validation set was not read for that")
    first = tuple(it.of(0).shape for it in found)
    count = min(len(it.arrays) for it in found)
    same = [row for row in range(count) if tuple(it.of(row).shape for it in found) == first][:MOST_ROWS]
    by_name = {it.name: it for it in found}

    def given(rows):
        # In the order of the file's inputs.
        return {name: numpy.stack([by_name[name].of(row) for row in rows]).astype(kind) for name, kind in kinds.items()}

    def pairs():
        for rows in (same, same[:1]):
            yield set(rows), given(rows), ask(given(rows)), ask(given(rows))

    return compare.check(library, what["target"], pairs())
