"""Converts a pickled model of scikit-learn, LightGBM or XGBoost to ONNX; runs in the Python that its owner names.

Arguments: the model, its validation set (or an empty string), where the ONNX file goes. Prints one JSON object a line:
`did` and `note` are told to the user, `missing` names a package, `refused` says why the model cannot be converted.
"""

import csv
import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path

REFUSED = 3
# Names of labels beside the columns of a validation set.
LABELS = {"label", "labels"}
# Rows that tell which columns of a table are text.
ROWS = 1000
# Packages that are called otherwise than their modules.
PACKAGES = {"sklearn": "scikit-learn"}


def tell(**what):
    print(json.dumps(what), flush=True)


def stop(**why):
    tell(**why)
    sys.exit(REFUSED)


def need(module):
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        return lack(error)


def lack(error):
    """Names the package of the module that is missing, which another may need without saying so."""
    module = error.name.split(".")[0]
    return stop(missing=PACKAGES.get(module, module))


def load(path):
    """What the file holds; joblib reads plain pickles as well."""
    try:
        joblib = importlib.import_module("joblib")
    except ImportError:
        joblib = None
    try:
        if joblib is not None:
            return joblib.load(path)
        if path.suffix == ".joblib":
            return stop(missing="joblib")
        with path.open("rb") as file:
            return pickle.load(file)
    except ModuleNotFoundError as error:
        return lack(error)


def text_columns(path):
    """Names of the columns of a CSV file that hold text; `None` where the set is no such file."""
    if path is None or path.suffix != ".csv":
        return None
    text = set()
    with path.open(newline="") as file:
        for row, _ in zip(csv.DictReader(file), range(ROWS)):
            text.update(name for name, cell in row.items() if name not in LABELS and not is_number(cell))
    return text


def is_number(cell):
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def initial_types(model, validation, types):
    """The inputs: one of all columns where these are numbers, else one for each column, or texts."""
    names = getattr(model, "feature_names_in_", None)
    text = text_columns(validation)
    if names is not None and text:
        kind = {True: types.StringTensorType, False: types.FloatTensorType}
        return [(str(name), kind[name in text]([None, 1])) for name in names]
    columns = getattr(model, "n_features_in_", None)
    if columns is not None:
        return [("X", types.FloatTensorType([None, int(columns)]))]
    return [("X", types.StringTensorType([None, 1]))]


def from_scikit_learn(model, validation):
    skl2onnx = need("skl2onnx")
    types = importlib.import_module("skl2onnx.common.data_types")
    return skl2onnx.convert_sklearn(model, initial_types=initial_types(model, validation, types))


def from_boosting(library, model):
    onnxmltools = need("onnxmltools")
    types = importlib.import_module("onnxmltools.convert.common.data_types")
    columns = getattr(model, "n_features_in_", None)
    if columns is None:
        columns = model.num_feature() if library == "lightgbm" else model.num_features()
    convert = getattr(onnxmltools, f"convert_{library}")
    return convert(model, initial_types=[("X", types.FloatTensorType([None, int(columns)]))])


def convert(model, validation):
    library = type(model).__module__.split(".")[0]
    if library in ("lightgbm", "xgboost"):
        return library, from_boosting(library, model)
    if library == "sklearn" or hasattr(model, "get_params"):
        return "scikit-learn", from_scikit_learn(model, validation)
    return stop(refused=f"it holds a `{type(model).__module__}.{type(model).__name__}`, which is no estimator of "
                "scikit-learn, LightGBM or XGBoost: export it to ONNX with its own library")


def main():
    model_path, validation, target = sys.argv[1:4]
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model = load(Path(model_path))
        # Such as that of an estimator which another version of its library has pickled.
        versions = {str(it.message).splitlines()[0] for it in raised if "Version" in it.category.__name__}
    for note in sorted(versions):
        tell(note=note)
    try:
        library, converted = convert(model, Path(validation) if validation else None)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        stop(refused=f"its library cannot write it as ONNX: {lines[0]}")
    Path(target).write_bytes(converted.SerializeToString())
    inputs = ", ".join(f"`{it.name}`" for it in converted.graph.input)
    tell(did=f"a {type(model).__name__} of {library} was written as ONNX with the inputs {inputs}")


main()
