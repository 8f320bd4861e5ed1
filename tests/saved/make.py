"""Writes the files of this folder, with PyTorch (`make.py torch`) or with Keras and TensorFlow (`make.py keras`)."""

import collections
import sys
import warnings

warnings.simplefilter("ignore")


def torch_files():
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    sample = torch.zeros(2, 4)
    torch.save(model, "module.pt")
    torch.save(model, "module-legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(model.state_dict(), "weights.pt")
    torch.save(model.state_dict(), "weights-legacy.pth", _use_new_zipfile_serialization=False)
    optimizer = torch.optim.Adam(model.parameters()).state_dict()
    torch.save({"epoch": 3, "model": collections.OrderedDict(model.state_dict()), "optimizer": optimizer}, "checkpoint.pt")
    torch.jit.trace(model, sample).save("script.pt")
    open_batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(model, (sample,), dynamic_shapes=open_batch), "program.pt2")


def keras_files():
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,), name="X"), keras.layers.Dense(3, activation="softmax")])
    model.save("dense.keras")
    model.save("dense.h5")
    model.save_weights("dense.weights.h5")
    model.export("saved_model", format="tf_saved_model", verbose=False)


{"torch": torch_files, "keras": keras_files}[sys.argv[1]]()
