"""A convolutional network of PyTorch, from training to an answer. Argument: the service's address."""

import sys

import numpy
import sextant
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

# Train on images of 8x8 pixels.
digits = load_digits()
X = (digits.images / 16).astype("float32")[:, numpy.newaxis]
y = digits.target
X_train, X_validation, y_train, y_validation = train_test_split(X, y, test_size=0.3, random_state=1, stratify=y)
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
images, labels = torch.from_numpy(X_train), torch.from_numpy(y_train)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
model.eval()

# Export with a batch of any size. The weights go into a file beside the model, which is sent along.
batch = torch.export.Dim("batch")
torch.onnx.export(
    model,
    (images[:2],),
    "digits.onnx",
    input_names=["image"],
    output_names=["logits"],
    dynamic_shapes=({0: batch},),
)

# Register, with records that the model has not seen. This waits until all variants are measured.
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
validation = {"image": X_validation, "labels": y_validation}
job = client.register("drawn-digits", "torch", model="digits.onnx", data=["digits.onnx.data"], validation=validation)
print("registered:", job["result"]["variants"], "variants;", "; ".join(job["result"].get("changes", [])))

# Ask for the most likely digit of each image.
answer = client.application("drawn-digits").query(image=X_validation[:5], latency_ms=1000, classification=1)
print("answered by", answer.variant, ":", [row[0]["class"] for row in answer.classification], "expected", y_validation[:5])
expected = model(torch.from_numpy(X_validation[:5])).detach().numpy()
assert numpy.allclose(answer["logits"], expected, atol=0.1)
