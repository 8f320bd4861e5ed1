"""Trains small models with the libraries people use and exports them as those libraries do by default.

    python exports.py FOLDER [NAME ..]

For each model: NAME.onnx (and NAME.onnx.data), NAME.npz (a validation set: inputs as NumPy makes them, and `labels`), and in
exports.json its metric, the accuracy that the library itself reaches on that set, and flags of `sextant
register` where the plain command cannot do it.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn import datasets

warnings.filterwarnings("ignore")

SEED = 7
EXPORTS = {}


def export(name):
    """Registers a function that returns what `save` takes."""

    def register(function):
        EXPORTS[name] = function
        return function

    return register


# --- data -----------------------------------------------------------------------------------------


def iris():
    return datasets.load_iris(return_X_y=True)


def cancer():
    return datasets.load_breast_cancer(return_X_y=True)


def diabetes():
    return datasets.load_diabetes(return_X_y=True)


# --- scikit-learn ---------------------------------------------------------------------------------


def sklearn(model, data, metric, sample=None, **options):
    """Fits, exports with one 32-bit row as a sample, and says what the model itself reaches."""
    from skl2onnx import to_onnx

    features, labels = data
    model.fit(features, labels)
    if sample is None:
        sample = features[:1].astype(np.float32)
    onnx = to_onnx(model, sample, **options)
    predicted = model.predict(features.astype(np.float32).astype(features.dtype))
    return onnx, {onnx.graph.input[0].name: features}, labels, metric, reached(metric, predicted, labels)


def reached(metric, predicted, labels):
    if metric == "mae":
        return float(np.abs(np.asarray(predicted, dtype=float) - labels).mean())
    return float((np.asarray(predicted).reshape(-1) == labels).mean())


def classifiers():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import (
        AdaBoostClassifier,
        BaggingClassifier,
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        RandomForestClassifier,
        StackingClassifier,
    )
    from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler
    from sklearn.svm import SVC, LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    seed = {"random_state": SEED}
    logistic = lambda: LogisticRegression(max_iter=1000)
    return {
        "adaboost": AdaBoostClassifier(n_estimators=10, **seed),
        "bagging": BaggingClassifier(**seed),
        "bayes": GaussianNB(),
        "boosting": GradientBoostingClassifier(n_estimators=10, **seed),
        "calibrated": CalibratedClassifierCV(logistic()),
        "extra-trees": ExtraTreesClassifier(20, **seed),
        "forest": RandomForestClassifier(20, **seed),
        "lda": LinearDiscriminantAnalysis(),
        "linear-svc": LinearSVC(**seed),
        "logistic": logistic(),
        "mlp": MLPClassifier(max_iter=200, **seed),
        "neighbours": KNeighborsClassifier(),
        "pipeline": make_pipeline(StandardScaler(), logistic()),
        "projected": make_pipeline(MinMaxScaler(), PCA(2), SVC(probability=True, **seed)),
        "ridge": RidgeClassifier(),
        "sgd": SGDClassifier(loss="log_loss", **seed),
        "stacking": StackingClassifier([("a", logistic()), ("b", DecisionTreeClassifier(**seed))]),
        "svc": SVC(probability=True, **seed),
        "tree": DecisionTreeClassifier(**seed),
    }


def regressors():
    from sklearn.ensemble import (
        AdaBoostRegressor,
        BaggingRegressor,
        GradientBoostingRegressor,
        RandomForestRegressor,
    )
    from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor

    seed = {"random_state": SEED}
    return {
        "adaboost": AdaBoostRegressor(n_estimators=5, **seed),
        "bagging": BaggingRegressor(**seed),
        "boosting": GradientBoostingRegressor(n_estimators=10, **seed),
        "elastic-net": ElasticNet(),
        "forest": RandomForestRegressor(20, **seed),
        "lasso": Lasso(),
        "linear": LinearRegression(),
        "mlp": MLPRegressor(max_iter=100, **seed),
        "neighbours": KNeighborsRegressor(),
        "polynomial": make_pipeline(PolynomialFeatures(2), Ridge()),
        "ridge": Ridge(),
        "svr": SVR(),
        "tree": DecisionTreeRegressor(**seed),
    }


def logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def all_of_scikit_learn():
    for name, model in classifiers().items():
        EXPORTS[f"sklearn-{name}"] = lambda model=model: sklearn(model, iris(), "top1")
    for name, model in regressors().items():
        EXPORTS[f"sklearn-{name}-regressor"] = lambda model=model: sklearn(model, diabetes(), "mae")
    for opset in (9, 11, 13, 15, 18, 21):
        EXPORTS[f"sklearn-opset-{opset}"] = lambda opset=opset: sklearn(
            logistic(), iris(), "top1", target_opset=opset
        )


@export("sklearn-binary")
def _():
    return sklearn(logistic(), cancer(), "top1")


@export("sklearn-class-names")
def _():
    features, labels = iris()
    names = datasets.load_iris().target_names[labels]
    return sklearn(logistic(), (features, names), "top1")


@export("sklearn-class-numbers")
def _():
    from sklearn.tree import DecisionTreeClassifier

    features, labels = iris()
    return sklearn(DecisionTreeClassifier(random_state=SEED), (features, labels * 2 + 3), "top1")


@export("sklearn-double")
def _():
    features, labels = iris()
    return sklearn(logistic(), (features, labels), "top1", sample=features[:1])


@export("sklearn-no-zipmap")
def _():
    return sklearn(logistic(), iris(), "top1", options={"zipmap": False})


@export("sklearn-zipmap-columns")
def _():
    return sklearn(logistic(), iris(), "exact", options={"zipmap": "columns"})


@export("sklearn-qda")
def _():
    """Its exporter declares and makes labels of shape [1, records]."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    made = sklearn(QuadraticDiscriminantAnalysis(), iris(), "top1")
    return *made, ["--output", "output_probability"]


@export("sklearn-external-data")
def _():
    """`save` writes the weights of this one beside it, as PyTorch's exporter does by default."""
    from sklearn.neural_network import MLPClassifier

    return sklearn(MLPClassifier(max_iter=200, random_state=SEED), iris(), "top1")


@export("sklearn-without-shapes")
def _():
    """Declares no shapes, as exporters do where their own inference gives up."""
    made = EXPORTS["sklearn-linear-regressor"]()
    for value in [*made[0].graph.input, *made[0].graph.output]:
        value.type.tensor_type.ClearField("shape")
    return made


@export("sklearn-two-targets")
def _():
    from sklearn.linear_model import LinearRegression

    features, labels = diabetes()
    return sklearn(LinearRegression(), (features, np.stack([labels, 2 * labels], 1)), "mae")


@export("sklearn-kmeans")
def _():
    from sklearn.cluster import KMeans

    features, _ = iris()
    model = KMeans(3, n_init=3, random_state=SEED).fit(features)
    return sklearn(model, (features, model.predict(features)), "exact")


@export("sklearn-outliers")
def _():
    from sklearn.ensemble import IsolationForest

    features, _ = iris()
    model = IsolationForest(n_estimators=10, random_state=SEED).fit(features)
    labels = model.predict(features)
    opset = {"": 18, "ai.onnx.ml": 3}
    return sklearn(model, (features, labels), "exact", target_opset=opset)


@export("sklearn-text")
def _():
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    texts = ["good film", "bad film", "nice movie", "awful movie", "great fun", "boring thing"]
    texts, labels = np.array(texts * 5), np.array([1, 0] * 15)
    model = make_pipeline(TfidfVectorizer(), logistic()).fit(texts, labels)
    onnx = to_onnx(model, initial_types=[("text", StringTensorType([None]))])
    return onnx, {"text": texts}, labels, "top1", reached("top1", model.predict(texts), labels)


@export("sklearn-table")
def _():
    import pandas
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    features, labels = iris()
    colours = np.random.default_rng(SEED).choice(["red", "green", "blue"], len(labels))
    table = pandas.DataFrame({"length": features[:, 0], "width": features[:, 1], "colour": colours})
    columns = [("numbers", StandardScaler(), ["length", "width"]), ("names", OneHotEncoder(), ["colour"])]
    model = make_pipeline(ColumnTransformer(columns), logistic()).fit(table, labels)
    column = [None, 1]
    types = [("length", FloatTensorType(column)), ("width", FloatTensorType(column)),
             ("colour", StringTensorType(column))]
    onnx = to_onnx(model, initial_types=types)
    inputs = {name: table[[name]].to_numpy() for name in ("length", "width")}
    inputs["colour"] = table[["colour"]].to_numpy().astype(str)
    return onnx, inputs, labels, "top1", reached("top1", model.predict(table), labels)


# --- boosted trees ---------------------------------------------------------------------------------


def boosted(model, convert, data, metric, **options):
    from onnxmltools.convert.common.data_types import FloatTensorType

    features, labels = data
    model.fit(features, labels)
    types = [("input", FloatTensorType([None, features.shape[1]]))]
    onnx = convert(model, initial_types=types, target_opset=15, **options)
    predicted = model.predict(features.astype(np.float32))
    return onnx, {"input": features}, labels, metric, reached(metric, predicted, labels)


def lightgbm(kind, data, metric, **options):
    import lightgbm
    import onnxmltools

    model = getattr(lightgbm, kind)(n_estimators=10, verbose=-1, random_state=SEED)
    return boosted(model, onnxmltools.convert_lightgbm, data, metric, **options)


def xgboost(kind, data, metric):
    import onnxmltools
    import xgboost

    model = getattr(xgboost, kind)(n_estimators=10, random_state=SEED)
    return boosted(model, onnxmltools.convert_xgboost, data, metric)


def catboost(kind, data, metric):
    import catboost
    import onnx

    features, labels = data
    model = getattr(catboost, kind)(iterations=10, verbose=0, random_state=SEED, allow_writing_files=False)
    model.fit(features, labels)
    file = Path(sys.argv[1]) / "catboost.tmp"
    model.save_model(str(file), format="onnx")
    saved = onnx.load(file)
    file.unlink()
    predicted = model.predict(features).reshape(-1)
    return saved, {"features": features}, labels, metric, reached(metric, predicted, labels)


EXPORTS |= {
    "lightgbm": lambda: lightgbm("LGBMClassifier", iris(), "top1"),
    "lightgbm-binary": lambda: lightgbm("LGBMClassifier", cancer(), "top1"),
    "lightgbm-no-zipmap": lambda: lightgbm("LGBMClassifier", cancer(), "top1", zipmap=False),
    "lightgbm-regressor": lambda: lightgbm("LGBMRegressor", diabetes(), "mae"),
    "xgboost": lambda: xgboost("XGBClassifier", iris(), "top1"),
    "xgboost-binary": lambda: xgboost("XGBClassifier", cancer(), "top1"),
    "xgboost-regressor": lambda: xgboost("XGBRegressor", diabetes(), "mae"),
    "catboost": lambda: catboost("CatBoostClassifier", iris(), "top1"),
    "catboost-binary": lambda: catboost("CatBoostClassifier", cancer(), "top1"),
    "catboost-regressor": lambda: catboost("CatBoostRegressor", diabetes(), "mae"),
}
all_of_scikit_learn()


# --- files ------------------------------------------------------------------------------------------


def save(folder, name, onnx, inputs, labels, metric, reaches, flags=()):
    if name.endswith("external-data"):
        from onnx import numpy_helper, save_model

        # Only raw data is written elsewhere.
        for tensor in onnx.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
        data = {"save_as_external_data": True, "location": f"{name}.onnx.data", "size_threshold": 0}
        (folder / data["location"]).unlink(missing_ok=True)
        save_model(onnx, str(folder / f"{name}.onnx"), **data)
    else:
        (folder / f"{name}.onnx").write_bytes(onnx.SerializeToString())
    np.savez_compressed(folder / f"{name}.npz", labels=labels, **inputs)
    return {"metric": metric, "reaches": reaches, "flags": list(flags)}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or sorted(EXPORTS)
    unknown = [name for name in names if name not in EXPORTS]
    if unknown:
        sys.exit(f"there is no export {unknown[0]}: there are {', '.join(sorted(EXPORTS))}")
    np.random.seed(SEED)
    index = {name: save(folder, name, *EXPORTS[name]()) for name in names}
    (folder / "exports.json").write_text(json.dumps(index, indent=1) + "\n")


main()
