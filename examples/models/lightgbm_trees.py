"""Gradient-boosted trees of LightGBM, from training to an answer. Argument: the service's address."""

import sys

import lightgbm
import numpy
import sextant
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

# Train.
X, y = load_breast_cancer(return_X_y=True)
X = X.astype("float32")
X_train, X_validation, y_train, y_validation = train_test_split(X, y, test_size=0.4, random_state=1, stratify=y)
model = lightgbm.LGBMClassifier(n_estimators=50, verbose=-1, random_state=1).fit(X_train, y_train)

# Export. The first dimension is the batch.
inputs = [("features", FloatTensorType([None, X.shape[1]]))]
onnx = convert_lightgbm(model, initial_types=inputs).SerializeToString()

# Register, with records that the model has not seen. This waits until all variants are measured.
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
validation = {"features": X_validation, "labels": y_validation}
job = client.register("tumours", "trees", model=onnx, validation=validation)
print("registered:", job["result"]["variants"], "variants")

# Ask for the cheapest answer that is accurate enough.
answer = client.application("tumours").query(features=X_validation[:5], min_accuracy=0.9)
probabilities = answer["probabilities"]
print(f"answered by {answer.variant} for {answer.cost_usd:.2g} US dollars:")
print(probabilities)
assert numpy.allclose(probabilities, model.predict_proba(X_validation[:5]), atol=1e-3)
