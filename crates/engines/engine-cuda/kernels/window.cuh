// A window that moves over an image.

// [height, width] everywhere; sizes of one image are 32-bit numbers.
struct Window {
    u64 in_size[2];
    u64 out_size[2];
    u64 kernel[2];
    u64 strides[2];
    u64 dilations[2];
    u64 pads_begin[2];
    u64 pads_end[2];
};

// The position of an element of the window.
struct Place {
    bool inside;  // the image
    bool padded;  // inside the image or its declared padding
    u64 pixel;    // index in the image, where inside
};

__device__ inline Place window_place(const Window& window, u32 out_row, u32 out_column, u32 kernel_row,
                                     u32 kernel_column) {
    u64 row = out_row * window.strides[0] + kernel_row * window.dilations[0];
    u64 column = out_column * window.strides[1] + kernel_column * window.dilations[1];
    Place place;
    place.padded = row < window.in_size[0] + window.pads_begin[0] + window.pads_end[0] &&
                   column < window.in_size[1] + window.pads_begin[1] + window.pads_end[1];
    // Positions before the image wrap to large numbers.
    row -= window.pads_begin[0];
    column -= window.pads_begin[1];
    place.inside = row < window.in_size[0] && column < window.in_size[1];
    place.pixel = row * window.in_size[1] + column;
    return place;
}
