"""A step: pictures of 8 x 8 pixels, each moved so that its ink lies in the middle."""

import math

import numpy


def centre(pixels):
    """Takes and gives FP32 [pictures, 64]."""
    pictures = pixels.reshape(-1, 8, 8)
    moved = numpy.zeros_like(pictures)
    for picture, into in zip(pictures, moved):
        rows, columns = numpy.nonzero(picture > 4)
        if not len(rows):
            raise ValueError("a picture without ink")
        down = math.floor(3.5 - (rows.min() + rows.max()) / 2)
        right = math.floor(3.5 - (columns.min() + columns.max()) / 2)
        into[:] = numpy.roll(picture, (down, right), (0, 1))
    return moved.reshape(-1, 64)
