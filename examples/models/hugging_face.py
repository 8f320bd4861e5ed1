"""A text classifier of Hugging Face's transformers, from training to an answer. Argument: the service's address."""

import json
import random
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy
import sextant
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

# Sentences of 3 to 21 words, whose first word of a feeling says what they are.
random.seed(1)
GOOD, BAD = ["lovely", "bright", "splendid", "warm"], ["dull", "dreadful", "cold", "broken"]
OTHERS = "the a this that film meal hotel book was is seems with of in our my and then".split()


def sentence(label):
    words = random.choices(OTHERS, k=random.randint(2, 20))
    words.insert(random.randint(0, len(words)), random.choice([BAD, GOOD][label]))
    return " ".join(words)


labels = [number % 2 for number in range(600)]
texts = [sentence(label) for label in labels]

# A tokenizer and a small model, made on the spot. A pretrained one is used in the same way.
words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
torch.manual_seed(1)
config = BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=64,
    id2label={0: "bad", 1: "good"},
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model.train()
for start in list(range(0, 400, 40)) * 6:
    batch = tokenizer(texts[start : start + 40], padding=True, return_tensors="pt", return_token_type_ids=False)
    optimizer.zero_grad()
    model(**batch, labels=torch.tensor(labels[start : start + 40])).loss.backward()
    optimizer.step()
model.eval()

# Export with batches of any size and texts of any length, into a folder with the configuration, which names the
# classes. `optimum-cli export onnx` leaves such a folder.
folder = Path(tempfile.mkdtemp())
model.config.save_pretrained(folder)
sample = tokenizer(texts[:2], padding=True, return_tensors="pt", return_token_type_ids=False)
torch.onnx.export(
    model,
    (sample["input_ids"], sample["attention_mask"]),
    folder / "model.onnx",
    input_names=["input_ids", "attention_mask"],
    output_names=["logits"],
    dynamic_axes={
        "input_ids": {0: "batch", 1: "length"},
        "attention_mask": {0: "batch", 1: "length"},
        "logits": {0: "batch"},
    },
    dynamo=False,
)
with zipfile.ZipFile(folder / "export.zip", "w") as archive:
    for file in ("model.onnx", "config.json"):
        archive.write(folder / file, file)

# Records that the model has not seen, each as long as it is. The mask lets texts of several lengths share a batch.
records = []
for text, label in zip(texts[400:], labels[400:]):
    tokens = tokenizer(text, return_token_type_ids=False)
    records.append(json.dumps({"inputs": dict(tokens), "label": label}))
client = sextant.Client(sys.argv[1] if len(sys.argv) > 1 else None)
job = client.register(
    "feelings",
    "bert",
    model=folder / "export.zip",
    validation="\n".join(records).encode(),
    mask="attention_mask",
    pad={"input_ids": tokenizer.pad_token_id},
)
print("registered:", job["result"]["variants"], "variants;", "; ".join(job["result"].get("changes", [])))

# Ask about a text.
for text in ("the film was splendid", "this hotel seems cold and dull"):
    tokens = tokenizer(text, return_tensors="np", return_token_type_ids=False)
    answer = client.application("feelings").query(**tokens, latency_ms=1000, classification=1)
    print(answer.classification[0][0]["name"], "<-", text, "answered by", answer.variant)
    with torch.no_grad():
        expected = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).logits.numpy()
    assert numpy.argmax(answer["logits"]) == numpy.argmax(expected)
