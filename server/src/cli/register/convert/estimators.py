"""Pickled models of scikit-learn, LightGBM and XGBoost, and whatever else a pickle holds that has a converter."""

import csv
import importlib
import pickle
import sys
import warnings

from . import records, say

# Rows that tell which columns of a table are text.
ROWS = 1000


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
            return say.stop(missing="joblib")
        with path.open("rb") as file:
            return pickle.load(file)
    except ModuleNotFoundError as error:
        return say.lack(error)


def text_columns(path):
    """Names of the columns of a CSV file that hold text; `None` where the set is no such file."""
    if not records.is_table(path):
        return None
    text = set()
    with path.open(newline="", encoding="utf-8") as file:
        for row, _ in zip(csv.DictReader(file), range(ROWS)):
            text.update(name for name, cell in row.items() if name not in records.LABELS and not is_number(cell))
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
    skl2onnx = say.need("skl2onnx")
    say.converter("skl2onnx")
    types = importlib.import_module("skl2onnx.common.data_types")
    return skl2onnx.convert_sklearn(model, initial_types=initial_types(model, validation, types))


def from_boosting(library, model):
    onnxmltools = say.need("onnxmltools")
    say.converter("onnxmltools")
    types = importlib.import_module("onnxmltools.convert.common.data_types")
    columns = getattr(model, "n_features_in_", None)
    if columns is None:
        columns = model.num_feature() if library == "lightgbm" else model.num_features()
    convert = getattr(onnxmltools, f"convert_{library}")
    return convert(model, initial_types=[("X", types.FloatTensorType([None, int(columns)]))])


def loaded(path):
    """The model, and a note for each version of a library that is another than the one that has pickled it."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model = load(path)
        versions = {str(it.message).splitlines()[0] for it in raised if "Version" in it.category.__name__}
    for note in sorted(versions):
        say.tell(note=note)
    return model


def is_module(model):
    """Whether it is a module of PyTorch, which then is imported already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def written(model, validation):
    """The name of its library, and the model as ONNX."""
    library = type(model).__module__.split(".")[0]
    if library in ("lightgbm", "xgboost"):
        return library, from_boosting(library, model)
    if library == "sklearn" or hasattr(model, "get_params"):
        return "scikit-learn", from_scikit_learn(model, validation)
    return say.refuse(
        f"it holds a `{type(model).__module__}.{type(model).__name__}`, which is no estimator of scikit-learn, LightGBM or "
        "XGBoost and no module of PyTorch: export it to ONNX with its own library"
    )


def convert(what):
    model = loaded(what["model"])
    if is_module(model):
        from . import pytorch

        return pytorch.convert_module(model, what)
    try:
        library, converted = written(model, what["validation"])
    except Exception as error:
        say.refuse(f"its library cannot write it as ONNX: {say.first_line(error)}")
    what["target"].write_bytes(converted.SerializeToString())
    inputs = ", ".join(f"`{it.name}`" for it in converted.graph.input)
    return say.tell(did=f"a {type(model).__name__} of {library} was written as ONNX with the inputs {inputs}")
