"""Trains nothing, saves models as people do: `converters.py torch FOLDER`, `converters.py keras FOLDER`.

Prints one JSON object a line for each: `name`, `model` and `validation` in the folder, `trust`, and `inputs` with the `answer` of the
library itself: numbers of the first output.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy

warnings.simplefilter("ignore")
RECORDS = 40
CLASSES = 3
TYPES = {"float32": "FP32", "int64": "INT64"}
# A module of its own, as a pickled class has to be in.
NET = '''
import torch


class Net(torch.nn.Module):
    """Pictures to classes; it has what counts rows in training."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, pixels):
        return self.head(self.body(pixels).mean(dim=(2, 3)))


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 3), torch.nn.Linear(2, 3)

    def forward(self, left, right, scale=1.0):
        both = self.left(left) + self.right(right)
        return {"scores": both * scale, "norm": both.norm(dim=1, keepdim=True)}


class Lengths(torch.nn.Module):
    """Tokens of any length to classes."""

    def __init__(self):
        super().__init__()
        self.words, self.reads, self.head = torch.nn.Embedding(50, 8), torch.nn.GRU(8, 8, batch_first=True), torch.nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.reads(self.words(tokens))[0][:, -1])


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        scores = self.head(x)
        if bool((scores.abs().max() > 100.0).item()):
            return scores / 100.0
        return scores * 2.0
'''


def case(folder, name, model, arrays, ask, trust=False, file="npz"):
    """Writes a validation set whose labels are the model's own answers, and tells of it."""
    answers = [numpy.asarray(ask({key: numpy.asarray(value[row])[None] for key, value in arrays.items()}))[0] for row in range(RECORDS)]
    labels = [int(numpy.argmax(answer)) for answer in answers]
    validation = f"{name}.{file}"
    if file == "npz":
        numpy.savez(folder / validation, **arrays, labels=numpy.asarray(labels))
    else:
        rows = [{"inputs": {key: numpy.asarray(value[row]).tolist() for key, value in arrays.items()}, "label": label} for row, label in enumerate(labels)]
        (folder / validation).write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = {key: numpy.asarray(value[0]) for key, value in arrays.items()}
    inputs = [
        {"name": key, "shape": [1, *value.shape], "datatype": TYPES[str(value.dtype)], "data": value.ravel().tolist()}
        for key, value in first.items()
    ]
    said = {"name": name, "model": model, "validation": validation, "trust": trust}
    print(json.dumps(said | {"inputs": inputs, "answer": answers[0].ravel().tolist()}), flush=True)


def torch_cases(folder):
    import torch

    torch.manual_seed(1)
    random = numpy.random.default_rng(1)
    (folder / "net.py").write_text(NET)
    sys.path.insert(0, str(folder))
    import net

    def asked(model, key=None):
        def ask(arrays):
            with torch.no_grad():
                answer = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
            return (answer if key is None else answer[key]).numpy()

        return ask

    def floats(*shape):
        return random.normal(size=(RECORDS, *shape)).astype("float32")

    def tokens():
        return [random.integers(1, 50, size=3 + row % 5) for row in range(RECORDS)]

    pictures, pair, lengths, branches = net.Net().eval(), net.Pair().eval(), net.Lengths().eval(), net.Branches().eval()
    torch.save(pictures, folder / "pictures.pt")
    case(folder, "torch-module", "pictures.pt", {"pixels": floats(3, 16, 16)}, asked(pictures), trust=True)
    torch.save(pair, folder / "pair.pth")
    case(folder, "torch-pair", "pair.pth", {"left": floats(4), "right": floats(2)}, asked(pair, "scores"), trust=True)
    torch.save(lengths, folder / "lengths.pt")
    case(folder, "torch-lengths", "lengths.pt", {"tokens": tokens()}, asked(lengths), trust=True, file="jsonl")
    torch.jit.script(branches).save(str(folder / "branches.pt"))
    case(folder, "torch-script", "branches.pt", {"x": floats(4)}, asked(branches))
    traced = torch.jit.trace(pictures, torch.zeros(2, 3, 16, 16))
    traced.save(str(folder / "traced.pt"))
    case(folder, "torch-traced", "traced.pt", {"pixels": floats(3, 16, 16)}, asked(pictures))
    program = torch.export.export(pictures, (torch.zeros(2, 3, 16, 16),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, str(folder / "program.pt2"))
    case(folder, "torch-program", "program.pt2", {"pixels": floats(3, 16, 16)}, asked(pictures), trust=True)
    hugging_face(folder, tokens, asked)


def hugging_face(folder, tokens, asked):
    import transformers

    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16, "max_position_embeddings": 32}
    labels = {"id2label": dict(enumerate(["bad", "good", "neither"])), "label2id": {"bad": 0, "good": 1, "neither": 2}}
    for name, config, model, inputs in (
        ("hf-bert", transformers.BertConfig, transformers.BertForSequenceClassification, ("input_ids", "attention_mask", "token_type_ids")),
        # Of these, the exporter of optimum knows the first alone, and other inputs are asked for than it writes.
        ("hf-bert-masked", transformers.BertConfig, transformers.BertForSequenceClassification, ("input_ids", "attention_mask")),
        ("hf-fnet", transformers.FNetConfig, transformers.FNetForSequenceClassification, ("input_ids",)),
    ):
        heads = {"num_attention_heads": 2} if config is transformers.BertConfig else {}
        made = model(config(**sizes, **heads, **labels)).eval()
        made.save_pretrained(folder / name)
        ids = tokens()
        filled = {"input_ids": ids, "attention_mask": [it * 0 + 1 for it in ids], "token_type_ids": [it * 0 for it in ids]}
        case(folder, name, name, {key: filled[key] for key in inputs}, asked(made, "logits"), file="jsonl")


def keras_cases(folder):
    import keras

    keras.utils.set_random_seed(1)
    random = numpy.random.default_rng(1)
    dense = keras.Sequential([keras.Input((4,), name="X"), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(CLASSES)])
    picture = keras.Input((12, 12, 3), name="pixels")
    body = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(keras.layers.Conv2D(8, 3)(picture)))
    pictures = keras.Model(picture, keras.layers.Dense(CLASSES)(body))

    def asked(model):
        return lambda arrays: model.predict(next(iter(arrays.values())), verbose=0)

    rows = random.normal(size=(RECORDS, 4)).astype("float32")
    for name, file in (("keras-dense", "dense.keras"), ("keras-h5", "dense.h5")):
        dense.save(folder / file)
        case(folder, name, file, {"X": rows}, asked(dense))
    pictures.save(folder / "pictures.keras")
    case(folder, "keras-pictures", "pictures.keras", {"pixels": random.random((RECORDS, 12, 12, 3), dtype="float32")}, asked(pictures))
    dense.export(str(folder / "dense"), format="tf_saved_model", verbose=False)
    case(folder, "tensorflow-saved-model", "dense", {"columns": rows}, asked(dense))


{"torch": torch_cases, "keras": keras_cases}[sys.argv[1]](Path(sys.argv[2]))
