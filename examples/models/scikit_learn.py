"""A scikit-learn pipeline, from training to an answer. Argument: the service's address."""

import sys

import sextant
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

# Train, on names of classes as people have them.
iris = load_iris()
X = iris.data.astype("float32")
y = iris.target_names[iris.target].astype(str)
X_train, X_validation, y_train, y_validation = train_test_split(X, y, test_size=0.4, random_state=1, stratify=y)
pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=50, random_state=1))
pipeline.fit(X_train, y_train)

# Export with the defaults: the map from class to probability becomes a tensor when the model is registered.
onnx = to_onnx(pipeline, X_train[:1]).SerializeToString()

# Register, with records that the model has not seen. This waits until all variants are measured.
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
job = client.register("flowers", "forest", model=onnx, validation={"X": X_validation, "labels": y_validation})
print("registered:", job["result"]["variants"], "variants;", "; ".join(job["result"].get("changes", [])))

# Ask for an answer within a second that is accurate enough, and for the two most likely classes of each row.
answer = client.application("flowers").query(X=X_validation[:3], latency_ms=1000, min_accuracy=0.8, classification=2)
print("answered by", answer.variant, "in", answer.timings["total_us"], "us, targets met:", answer.targets_met)
for label, likely, expected in zip(answer["output_label"], answer.classification, y_validation):
    print(label, [(it["name"], round(it["score"], 3)) for it in likely], "expected", expected)
assert list(answer["output_label"]) == list(pipeline.predict(X_validation[:3]))
