"""Makes the files of this folder: a picture of a digit, a tokenizer, a small text classifier and its validation set.

Needs numpy and onnx alone. The classifier scores a sentence by the mean of its words' weights, which logistic
regression finds; sentences are made up, and words of feeling among them say what they are.
"""

import json
import random
import struct
import zlib
from pathlib import Path

import numpy
from onnx import TensorProto, helper, numpy_helper, save_model

HERE = Path(__file__).parent
GOOD, BAD = "lovely bright splendid warm".split(), "dull dreadful cold broken".split()
OTHERS = "the a this that film meal hotel book was is seems with of in our my and then".split()
WORDS = ["[PAD]", "[UNK]", *GOOD, *BAD, *OTHERS]
CLASSES = ["bad", "good"]

random.seed(1)
labels = numpy.array([number % 2 for number in range(1000)])


def sentence(label):
    words = random.choices(OTHERS, k=random.randint(2, 20)) + random.choices([BAD, GOOD][label], k=random.randint(1, 3))
    random.shuffle(words)
    return " ".join(words)


texts = [sentence(label) for label in labels]

# What `tokenizers` of Hugging Face reads: words between spaces, small letters, a number each.
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {"id": at, "content": WORDS[at], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for at in (0, 1)
    ],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
}
(HERE / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")

longest = max(len(text.split()) for text in texts)
ids = numpy.zeros((len(texts), longest), numpy.int64)
for row, text in enumerate(texts):
    words = [WORDS.index(word) for word in text.split()]
    ids[row, : len(words)] = words
mask = (ids != 0).astype(numpy.int64)

# Logistic regression over the share of each word in the sentence.
shares = numpy.zeros((len(texts), len(WORDS)), numpy.float32)
for row in range(len(texts)):
    for word in ids[row][mask[row] == 1]:
        shares[row, word] += 1 / mask[row].sum()
weights = numpy.zeros((len(WORDS), 2), numpy.float32)
train = slice(0, 600)
for _ in range(3000):
    scores = shares[train] @ weights
    likely = numpy.exp(scores - scores.max(1, keepdims=True))
    likely /= likely.sum(1, keepdims=True)
    likely[numpy.arange(600), labels[train]] -= 1
    weights -= 20.0 / 600 * shares[train].T @ likely
weights[0] = 0

graph = helper.make_graph(
    [
        helper.make_node("Gather", ["weights", "input_ids"], ["of_words"]),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "last"], ["wide"]),
        helper.make_node("Mul", ["of_words", "wide"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "tokens"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["real", "tokens"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["scores"]),
    ],
    "sentiment",
    [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])],
    [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(numpy.array([2], numpy.int64), "last"),
        numpy_helper.from_array(numpy.array([1], numpy.int64), "tokens"),
    ],
)
save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), HERE / "sentiment.onnx")
held = slice(600, 1000)
numpy.savez_compressed(HERE / "sentiment.npz", input_ids=ids[held], attention_mask=mask[held], labels=labels[held])
right = ((shares[held] @ weights).argmax(1) == labels[held]).mean()
print(f"accuracy {right:.3f} on {held.stop - held.start} sentences")


def png(pixels):
    """A grey picture as PNG."""
    height, width = pixels.shape
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


# The first image of the test set, a five, each pixel sixteen times as wide and as high.
images = numpy.load(HERE.parent / "digits" / "test.npz")
five = (images["pixels"][0].reshape(8, 8) / 16 * 255).round().astype(numpy.uint8)
(HERE / "digit.png").write_bytes(png(five.repeat(16, 0).repeat(16, 1)))
