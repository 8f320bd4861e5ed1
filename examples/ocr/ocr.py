"""Steps of the pipeline `ocr`: what lies between the models that find, turn and read lines of text.

Post-processing of the detector is that of Differentiable Binarization (Liao et al. 2020, section 3.4): a map of
probabilities is cut at a threshold, each region becomes its smallest rectangle, and that is grown by as much as training
has shrunk it. Sizes and thresholds are those that the models are used with in the package `rapidocr` 3.10.
"""

import cv2
import numpy
import pyclipper

# A picture is brought to a shorter side of at least, and a longer one of at most, so many pixels.
SHORTEST, LONGEST = 736, 2000
# A pixel belongs to a line from this probability on; a line counts from this mean on, and is grown by this factor.
PIXEL, LINE, GROWTH = 0.3, 0.5, 1.6
# Lines that lie no further apart, pixels, stand in one row.
ROW = 10
# Sizes of the inputs of the models that turn and read.
TURN, READ = (48, 192), (48, 320)
# From this probability on a line is upside down.
UPSIDE_DOWN = 0.9
# From this score on what was read is answered.
READABLE = 0.5

cv2.setNumThreads(1)


def prepare(image):
    """A file as a picture [height, width, 3], blue first, and as the detector takes it [1, 3, height, width]."""
    picture = cv2.imdecode(numpy.frombuffer(image[0], numpy.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("the file is no picture")
    height, width = picture.shape[:2]
    if max(height, width) > LONGEST:
        picture = resized(picture, LONGEST / max(height, width))
    scale = max(1.0, SHORTEST / min(picture.shape[:2]))
    x = resized(picture, scale).astype(numpy.float32) / 255
    return picture, ((x - 0.5) / 0.5).transpose(2, 0, 1)[None]


def resized(picture, scale):
    """The picture in another size, of whole multiples of 32 pixels."""
    height, width = (max(32, round(int(side * scale) / 32) * 32) for side in picture.shape[:2])
    return cv2.resize(picture, (width, height))


def find(picture, likely):
    """Corners of the lines [lines, 4, 2] in the order in which they are read, and the lines as `turn` takes them."""
    corners = rows([box for box in boxes(likely[0, 0], picture.shape[:2])])
    lines = [fitted(cut(picture, box), *TURN) for box in corners]
    return corners, numpy.array(lines, numpy.float32).reshape(-1, 3, *TURN)


def boxes(likely, size):
    """The rectangles of a map of probabilities, in pixels of a picture of this size."""
    mask = cv2.dilate((likely > PIXEL).astype(numpy.uint8), numpy.ones((2, 2), numpy.uint8))
    scale = numpy.array([size[1] / likely.shape[1], size[0] / likely.shape[0]])
    most = numpy.array([size[1], size[0]])
    for contour in cv2.findContours(mask * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0][:1000]:
        points, side = rectangle(contour)
        if side < 3 or mean_within(likely, points) < LINE:
            continue
        distance = cv2.contourArea(points) * GROWTH / cv2.arcLength(points, True)
        grown = pyclipper.PyclipperOffset()
        grown.AddPath(points, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
        points, side = rectangle(numpy.array(grown.Execute(distance)).reshape(-1, 1, 2))
        if side < 5:
            continue
        points = clockwise(numpy.clip(numpy.round(points * scale), 0, most).astype(numpy.int32))
        points = numpy.clip(points, 0, most - 1).astype(numpy.float32)
        if min(int(numpy.linalg.norm(points[0] - points[at])) for at in (1, 3)) > 3:
            yield points


def rectangle(contour):
    """The corners of the smallest rectangle around a contour, and its shorter side."""
    around = cv2.minAreaRect(contour)
    points = sorted(cv2.boxPoints(around).tolist())
    left, right = sorted(points[:2], key=lambda it: it[1]), sorted(points[2:], key=lambda it: it[1])
    return numpy.array([left[0], right[0], right[1], left[1]], numpy.float32), min(around[1])


def clockwise(points):
    """Corners from the upper left one on."""
    points = points[numpy.argsort(points[:, 0])]
    left, right = points[:2], points[2:]
    left, right = left[numpy.argsort(left[:, 1])], right[numpy.argsort(right[:, 1])]
    return numpy.array([left[0], right[0], right[1], left[1]])


def mean_within(likely, points):
    """The mean probability within a rectangle."""
    most = numpy.array([likely.shape[1] - 1, likely.shape[0] - 1])
    low = numpy.clip(numpy.floor(points.min(0)).astype(int), 0, most)
    high = numpy.clip(numpy.ceil(points.max(0)).astype(int), 0, most)
    mask = numpy.zeros((high - low + 1)[::-1], numpy.uint8)
    cv2.fillPoly(mask, (points - low).reshape(1, -1, 2).astype(numpy.int32), 1)
    return cv2.mean(likely[low[1] : high[1] + 1, low[0] : high[0] + 1], mask)[0]


def rows(corners):
    """The lines from top to bottom, and those of one row from left to right."""
    corners = numpy.array(corners, numpy.float32).reshape(-1, 4, 2)
    corners = corners[numpy.argsort(corners[:, 0, 1], kind="stable")]
    if len(corners):
        row = numpy.concatenate([[0], numpy.cumsum(numpy.diff(corners[:, 0, 1]) >= ROW)])
        corners = corners[numpy.lexsort((corners[:, 0, 0], row))]
    return corners


def cut(picture, corners):
    """A line of the picture, straightened; one that stands is laid down."""
    length = lambda one, other: numpy.linalg.norm(corners[one] - corners[other])
    width, height = int(max(length(0, 1), length(2, 3))), int(max(length(0, 3), length(1, 2)))
    to = numpy.array([[0, 0], [width, 0], [width, height], [0, height]], numpy.float32)
    matrix = cv2.getPerspectiveTransform(corners, to)
    line = cv2.warpPerspective(picture, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return numpy.rot90(line) if height >= 1.5 * width else line


def fitted(line, height, width):
    """A line as models take it [3, height, width]: as high as they want it, and with nothing behind it."""
    own = min(width, int(numpy.ceil(height * line.shape[1] / line.shape[0])))
    padded = numpy.zeros((3, height, width), numpy.float32)
    padded[:, :, :own] = (cv2.resize(line, (own, height)).astype(numpy.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return padded


def turn(picture, corners, upright):
    """The lines as the reader takes them [lines, 3, 48, width], those that are upside down turned."""
    lines = [cut(picture, box) for box in corners]
    for at, (_, turned) in enumerate(upright):
        if turned > UPSIDE_DOWN:
            lines[at] = cv2.rotate(lines[at], cv2.ROTATE_180)
    height, least = READ
    width = int(height * max([least / height, *(line.shape[1] / line.shape[0] for line in lines)]))
    return numpy.array([fitted(line, height, width) for line in lines], numpy.float32).reshape(-1, 3, height, width)


def answer(text, scores, corners):
    """What can be read, how sure that is, and where it stands."""
    kept = [at for at, it in enumerate(text) if it.strip() and scores[at] >= READABLE]
    return text[kept], scores[kept], corners[kept]
