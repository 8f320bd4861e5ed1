"""Trains and pickles models as people do. Arguments: the folder for them and their validation sets."""

import csv
import pickle
import sys
from pathlib import Path

import joblib
import lightgbm
import numpy
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def numbers(folder):
    rows, labels = load_iris(return_X_y=True)
    rows = rows.astype("float32")
    numpy.savez(folder / "iris.npz", X=rows, labels=labels)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(rows, labels)
    joblib.dump(model, folder / "pipeline.joblib")
    with (folder / "linear.pkl").open("wb") as file:
        pickle.dump(LogisticRegression(max_iter=1000).fit(rows, labels), file)


def boosted(folder):
    rows, labels = load_iris(return_X_y=True)
    model = lightgbm.LGBMClassifier(n_estimators=10, verbose=-1).fit(rows, labels)
    joblib.dump(model, folder / "boosted.pkl")


def table(folder):
    """A table of text and numbers, one input for each column."""
    colours = ["red", "green", "blue"]
    rows = [(colours[at % 3], float(at % 7), int(at % 3 == 0 or at % 7 > 4)) for at in range(120)]
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("colour", "size", "label"), *rows])
    columns = numpy.rec.fromrecords(rows, names="colour,size,label")
    frame = numpy.empty((len(rows), 2), dtype=object)
    frame[:, 0], frame[:, 1] = columns.colour, columns["size"]
    steps = make_column_transformer((OneHotEncoder(), [0]), (StandardScaler(), [1]))
    model = make_pipeline(steps, LogisticRegression()).fit(frame, columns.label)
    # What fitting on a data frame leaves: names of the columns.
    model.steps[0][1].feature_names_in_ = numpy.array(["colour", "size"], dtype=object)
    joblib.dump(model, folder / "table.pkl")


class Slow:
    """Says in the folder that it is loaded in which process loads it, and does not come to an end."""

    def __reduce__(self):
        code = "import os, pathlib, time; pathlib.Path('begun').write_text(str(os.getpid())); time.sleep(3600)"
        return exec, (code,)


def other(folder):
    for name, holds in (("list.pkl", [1, 2, 3]), ("slow.pkl", Slow())):
        with (folder / name).open("wb") as file:
            pickle.dump(holds, file)
    (folder / "damaged.pkl").write_bytes(b"\x80\x04no pickle")


if __name__ == "__main__":
    for make in (numbers, boosted, table, other):
        make(Path(sys.argv[1]))
