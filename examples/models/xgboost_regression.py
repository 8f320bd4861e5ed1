"""A regression of XGBoost, scored by its mean absolute error, from training to an answer. Argument: the service's
address."""

import sys

import numpy
import sextant
import xgboost
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

# Train.
X, y = load_diabetes(return_X_y=True)
X, y = X.astype("float32"), y.astype("float32")
X_train, X_validation, y_train, y_validation = train_test_split(X, y, test_size=0.4, random_state=1)
model = xgboost.XGBRegressor(n_estimators=50, max_depth=3, random_state=1).fit(X_train, y_train)

# Export. The first dimension is the batch.
inputs = [("features", FloatTensorType([None, X.shape[1]]))]
onnx = convert_xgboost(model, initial_types=inputs).SerializeToString()

# Register: for a regression the labels have the shape of the output, here one column.
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
validation = {"features": X_validation, "labels": y_validation.reshape(-1, 1)}
job = client.register("progression", "boosted", model=onnx, validation=validation, metric="mae")
print("registered:", job["result"]["variants"], "variants, scored by", job["result"]["scored_output"])

# Ask for one patient; targets for errors are `max_error`.
answer = client.application("progression").query(features=X_validation[0], max_error=100)
print("answered by", answer.variant, ":", answer["variable"])
assert numpy.allclose(answer["variable"], model.predict(X_validation[:1]), rtol=1e-3)
