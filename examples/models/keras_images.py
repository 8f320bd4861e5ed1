"""A convolutional network of Keras, from training to an answer. Argument: the service's address."""

import sys

import keras
import numpy
import sextant
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

# Train on images of 8x8 pixels.
digits = load_digits()
X = (digits.images / 16).astype("float32")[..., numpy.newaxis]
y = digits.target
X_train, X_validation, y_train, y_validation = train_test_split(X, y, test_size=0.3, random_state=1, stratify=y)
model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1), name="image"),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(X_train, y_train, epochs=15, verbose=0)

# Export. Keras names the input itself: the signature below tells how.
model.export("digits.onnx", format="onnx", verbose=False)

# Register, with records that the model has not seen. This waits until all variants are measured.
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
name = model.inputs[0].name
validation = {name: X_validation, "labels": y_validation}
job = client.register("written-digits", "convolutions", model="digits.onnx", validation=validation)
print("registered:", job["result"]["variants"], "variants")

# Ask for the most likely digit of each image.
application = client.application("written-digits")
print("signature:", application.signature()["inputs"], application.signature()["outputs"])
answer = application.query({name: X_validation[:5]}, latency_ms=1000, classification=1)
print("answered by", answer.variant, ":", [row[0]["class"] for row in answer.classification], "expected", y_validation[:5])
(scores,) = answer.values()
assert numpy.allclose(scores, model.predict(X_validation[:5], verbose=0), atol=0.05)
