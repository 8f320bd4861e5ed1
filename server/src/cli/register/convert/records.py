"""The first records of a validation set: what a model is exported with, and what it is compared on."""

import csv
import json
import zipfile
from dataclasses import dataclass

# Names of labels beside the inputs of a validation set.
LABELS = {"label", "labels"}
# Records that are read.
FIRST = 256


@dataclass
class Input:
    """An input: `arrays` holds one array for each record, without the dimension that counts them."""

    name: str
    arrays: list

    def rank(self):
        return self.arrays[0].ndim

    def lengths(self, axis):
        """The lengths of a dimension in all records that were read."""
        return tuple(array.shape[axis] for array in self.arrays)

    def open_axes(self):
        """Dimensions whose lengths differ among records."""
        return [axis for axis in range(self.rank()) if len(set(self.lengths(axis))) > 1]

    def of(self, record):
        return self.arrays[record]


def read(path):
    """The inputs of a validation set: `Input`s of an archive or of JSON lines, or a `Table`; `None` where its form is another."""
    if path is None or not path.is_file():
        return None
    if zipfile.is_zipfile(path):
        return _archive(path)
    return Table(path) if is_table(path) else _lines(path)


def is_table(path):
    """Whether it is a CSV file, and neither an archive nor JSON lines."""
    if path is None or not path.is_file() or zipfile.is_zipfile(path):
        return False
    with path.open("rb") as file:
        return not file.read(4096).lstrip().startswith(b"{")


def _archive(path):
    numpy = _numpy()
    with numpy.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if name not in LABELS]
        return [Input(name, list(archive[name][:FIRST])) for name in names]


def _lines(path):
    numpy = _numpy()
    columns = {}
    with path.open(encoding="utf-8") as file:
        for line, _ in zip((line for line in file if line.strip()), range(FIRST)):
            for name, value in json.loads(line)["inputs"].items():
                columns.setdefault(name, []).append(_array(numpy, value))
    return [Input(name, arrays) for name, arrays in columns.items()]


def _array(numpy, value):
    array = numpy.asarray(value)
    return array.astype("float32") if array.dtype.kind == "f" else array


def _numpy():
    from . import say

    return say.need("numpy")


class Table:
    """A CSV file: which of its columns belong to which input depends on what the inputs are called."""

    def __init__(self, path):
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            self.rows = [row for row, _ in zip(reader, range(FIRST))]
            names = reader.fieldnames or []
        self.columns = [name for name in names if name.split(".")[0] not in LABELS]

    def inputs(self, names):
        """The inputs of these names, or all columns as the elements of the only one."""
        numpy = _numpy()
        found = []
        for name in names:
            own = [column for column in self.columns if column == name or column.rsplit(".", 1)[0] == name]
            if own:
                found.append(self._input(numpy, name, own))
        if not found and len(names) == 1:
            return [self._input(numpy, names[0], self.columns)]
        return found

    def _input(self, numpy, name, columns):
        cells = [[_number(row[column]) for column in columns] for row in self.rows]
        return Input(name, list(numpy.asarray(cells, dtype="float32")))


def _number(cell):
    return float(cell) if cell else float("nan")
