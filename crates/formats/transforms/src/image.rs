//! Images: decoded, turned upright, cropped, resized and converted to numbers.

use std::io::Cursor;

use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer, images};
use image::{DynamicImage, ImageDecoder, ImageReader, Limits, Rgb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};

use crate::{Error, check_size, named, numbers, spec};

/// Most pixels of one side of a picture.
const MOST_SIDE: u32 = 16_384;

/// Most bytes that decoding one image may take: a small file may claim to be a large image.
const MOST_DECODED_BYTES: u64 = 256 << 20;

/// Least bytes of memory of a pixel while its image is decoded and turned: four channels, twice.
const DECODED_PIXEL_BYTES: u64 = 8;

/// How pictures become tensors. A pixel is `(value / 255 * scale - mean) / std`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageOptions {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
    /// 3 for red, green and blue, 1 for grey.
    #[serde(default = "three")]
    pub channels: u8,
    /// What happens to a picture of another shape.
    #[serde(default)]
    pub fit: Fit,
    /// The filter between sizes.
    #[serde(default)]
    pub resampling: Resampling,
    /// The order of the dimensions.
    #[serde(default)]
    pub layout: Layout,
    /// The value of the brightest pixel before `mean` and `std`.
    #[serde(default = "one")]
    pub scale: f32,
    /// Value subtracted: one number for each channel, or none.
    #[serde(default)]
    pub mean: Vec<f32>,
    /// Divisor of the values: one number for each channel, or none.
    #[serde(default)]
    pub std: Vec<f32>,
    /// The brightness of the pixels that `contain` adds, 0 to 255.
    #[serde(default)]
    pub fill: u8,
    /// Whether blue comes first.
    #[serde(default)]
    pub bgr: bool,
    /// Whether brightness is inverted.
    #[serde(default)]
    pub invert: bool,
}

/// What happens to a picture of another shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// It is stretched.
    #[default]
    Stretch,
    /// It is cut at the middle.
    Cover,
    /// It is kept whole and filled up at the right and below.
    Contain,
}

/// The filter between sizes, as Pillow has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resampling {
    /// No filter.
    Nearest,
    /// The mean of what a pixel covers.
    Box,
    /// A triangle.
    #[default]
    Bilinear,
    /// Catmull and Rom's cubic.
    Bicubic,
    /// Lanczos' of three lobes.
    Lanczos,
}

/// The order of a tensor's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `[pictures, channels, height, width]`.
    #[default]
    Nchw,
    /// `[pictures, height, width, channels]`.
    Nhwc,
    /// `[pictures, height * width * channels]`.
    Flat,
}

fn three() -> u8 {
    3
}

fn one() -> f32 {
    1.0
}

/// The transform.
pub(crate) struct Image {
    options: ImageOptions,
    /// Whether boxes are cropped out of one image.
    cuts: bool,
    /// The factor and the summand for the bytes of each channel.
    slopes: Vec<(f32, f32)>,
}

/// A part of a picture, in pixels.
#[derive(Debug, Clone, Copy)]
struct Part {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

// === impl Image ===

impl Image {
    pub fn new(options: &ImageOptions, cuts: bool) -> Result<Self, Error> {
        let invalid = |option, why: &str| Error::Option {
            option,
            why: why.to_owned(),
        };
        let is_side = |side: u32| (1..=MOST_SIDE).contains(&side);
        if !is_side(options.width) || !is_side(options.height) {
            return Err(invalid("width", "and `height` are 1 to 16384"));
        }
        if ![1, 3].contains(&options.channels) {
            return Err(invalid("channels", "is 1 or 3"));
        }
        let fits = |numbers: &[f32]| [0, options.channels.into()].contains(&numbers.len());
        if !fits(&options.mean) {
            return Err(invalid("mean", "has one number for each channel"));
        }
        if !fits(&options.std) || options.std.iter().any(|std| !std.is_normal()) {
            return Err(invalid(
                "std",
                "has one number for each channel, none of them zero",
            ));
        }
        let finite = options
            .mean
            .iter()
            .chain([&options.scale])
            .all(|it| it.is_finite());
        if !finite {
            return Err(invalid("scale", "and `mean` are finite"));
        }
        let slope = |channel: usize| {
            let of = |numbers: &[f32], without| numbers.get(channel).copied().unwrap_or(without);
            let (mean, std) = (of(&options.mean, 0.0), of(&options.std, 1.0));
            (options.scale / 255.0 / std, -mean / std)
        };
        Ok(Self {
            slopes: (0..options.channels.into()).map(slope).collect(),
            options: options.clone(),
            cuts,
        })
    }

    pub fn signature(&self) -> Signature {
        let picture = spec("image", DataType::Bytes, &[if self.cuts { 1 } else { -1 }]);
        let boxes = self.cuts.then(|| spec("boxes", DataType::Fp32, &[-1, 4]));
        Signature {
            inputs: [picture].into_iter().chain(boxes).collect(),
            outputs: vec![spec("pixels", DataType::Fp32, &self.shape(-1))],
            batched: false,
        }
    }

    /// The shape of `pictures` images.
    fn shape(&self, pictures: i64) -> Vec<i64> {
        let of = &self.options;
        let (height, width, channels) = (of.height.into(), of.width.into(), of.channels.into());
        match of.layout {
            Layout::Nchw => vec![pictures, channels, height, width],
            Layout::Nhwc => vec![pictures, height, width, channels],
            Layout::Flat => vec![pictures, height * width * channels],
        }
    }

    pub fn apply(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
        let files = numbers::strings("image", named(inputs, "image")?)?;
        let boxes = match self.cuts {
            true => Some(named(inputs, "boxes")?),
            false => None,
        };
        let count = boxes.map_or(files.len(), |boxes| boxes.rows());
        let shape: Vec<usize> = self
            .shape(count as i64)
            .iter()
            .map(|size| *size as usize)
            .collect();
        check_size("pixels", &shape, 4)?;
        let mut pixels = Vec::with_capacity(shape.iter().product());
        match boxes {
            None => {
                for (row, file) in files.iter().enumerate() {
                    self.take(&self.decode(row, file)?, None, &mut pixels)
                        .map_err(|why| Error::Row {
                            input: "image",
                            row,
                            why,
                        })?;
                }
            }
            Some(boxes) => {
                let [_, _] = numbers::shape("boxes", boxes)?;
                let corners = numbers::floats("boxes", boxes)?;
                let file = files.get(0).filter(|_| count > 0);
                let picture = file.map(|file| self.decode(0, file)).transpose()?;
                for (row, corners) in corners.chunks_exact(4).enumerate() {
                    let Some(picture) = &picture else { break };
                    let fail = |why| Error::Row {
                        input: "boxes",
                        row,
                        why,
                    };
                    let part = Part::new(corners, picture).map_err(fail)?;
                    self.take(picture, Some(part), &mut pixels).map_err(fail)?;
                }
            }
        }
        Ok(vec![numbers::tensor("pixels", shape, &pixels)?])
    }

    /// Bytes of all pixels, and of the largest image while it is decoded, turned and converted to its channels.
    pub fn needs_bytes(&self, inputs: &[NamedTensor]) -> u64 {
        let Ok(files) = named(inputs, "image").and_then(|it| numbers::strings("image", it)) else {
            return 0;
        };
        let boxes = if self.cuts {
            named(inputs, "boxes").ok()
        } else {
            None
        };
        let count = boxes.map_or(files.len(), |boxes| boxes.rows());
        let shape = self.shape(count as i64);
        let pixels = shape
            .iter()
            .fold(4u64, |bytes, size| bytes.saturating_mul(*size as u64));
        let decoded = files.iter().map(|file| {
            let reader = ImageReader::new(Cursor::new(file)).with_guessed_format();
            let decoder = reader.ok().and_then(|reader| reader.into_decoder().ok());
            decoder.map_or(0, |decoder| {
                let (width, height) = decoder.dimensions();
                let pixels = u64::from(width).saturating_mul(height.into());
                let twice = decoder.total_bytes().saturating_mul(2);
                pixels.saturating_mul(DECODED_PIXEL_BYTES).max(twice)
            })
        });
        pixels.saturating_add(decoded.max().unwrap_or(0).min(2 * MOST_DECODED_BYTES))
    }

    /// The image in a file, upright, with the requested channels.
    fn decode(&self, row: usize, file: &[u8]) -> Result<images::Image<'static>, Error> {
        let fail = |why: String| Error::Row {
            input: "image",
            row,
            why,
        };
        let unreadable =
            |error: image::ImageError| fail(format!("is no picture that can be read: {error}"));
        let reader = ImageReader::new(Cursor::new(file)).with_guessed_format();
        let mut reader = reader.map_err(|error| fail(format!("cannot be read: {error}")))?;
        if reader.format().is_none() {
            return Err(fail("is no JPEG, PNG or WebP".to_owned()));
        }
        let mut limits = Limits::default();
        limits.max_image_width = Some(MOST_SIDE);
        limits.max_image_height = Some(MOST_SIDE);
        limits.max_alloc = Some(MOST_DECODED_BYTES);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(unreadable)?;
        // A decoder limits its own buffers, and not the image that it fills.
        let bytes = decoder.total_bytes();
        if bytes > MOST_DECODED_BYTES {
            return Err(fail(format!(
                "takes `{bytes}` bytes decoded: at most `{MOST_DECODED_BYTES}` are made"
            )));
        }
        let upright = decoder.orientation().map_err(unreadable)?;
        let mut picture = DynamicImage::from_decoder(decoder).map_err(unreadable)?;
        picture.apply_orientation(upright);
        let (width, height) = (picture.width(), picture.height());
        let (bytes, kind) = match self.options.channels {
            1 => (brightness(picture), PixelType::U8),
            _ => (picture.into_rgb8().into_raw(), PixelType::U8x3),
        };
        images::Image::from_vec_u8(width, height, bytes, kind)
            .map_err(|error| fail(format!("cannot be held: {error}")))
    }

    /// Appends the numbers of a part of an image, by default of the whole image.
    fn take(
        &self,
        picture: &images::Image<'_>,
        part: Option<Part>,
        pixels: &mut Vec<f32>,
    ) -> Result<(), String> {
        let of = &self.options;
        let whole = part.unwrap_or_else(|| Part::of(picture));
        let ((width, height), part) = whole.fitted(of);
        let mut sized = images::Image::new(width, height, picture.pixel_type());
        let algorithm = match of.resampling {
            Resampling::Nearest => ResizeAlg::Nearest,
            Resampling::Box => ResizeAlg::Convolution(FilterType::Box),
            Resampling::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Resampling::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
            Resampling::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        };
        let options = ResizeOptions::new()
            .resize_alg(algorithm)
            .crop(part.left, part.top, part.width, part.height)
            .use_alpha(false);
        let resized = Resizer::new().resize(picture, &mut sized, &options);
        resized.map_err(|error| format!("cannot be brought to its size: {error}"))?;
        self.write(sized.buffer(), (width as usize, height as usize), pixels);
        Ok(())
    }

    /// Appends bytes of `width` by `height` pixels as numbers, padded to the requested size.
    fn write(&self, bytes: &[u8], (width, height): (usize, usize), pixels: &mut Vec<f32>) {
        let of = &self.options;
        let channels = usize::from(of.channels);
        let value = |row: usize, column: usize, channel: usize| {
            let from = if of.bgr {
                channels - 1 - channel
            } else {
                channel
            };
            let byte = match row < height && column < width {
                true => bytes[(row * width + column) * channels + from],
                false => of.fill,
            };
            let byte = if of.invert { 255 - byte } else { byte };
            let (slope, offset) = self.slopes[channel];
            f32::from(byte) * slope + offset
        };
        let (rows, columns) = (of.height as usize, of.width as usize);
        match of.layout {
            Layout::Nchw => {
                for channel in 0..channels {
                    for row in 0..rows {
                        pixels.extend((0..columns).map(|column| value(row, column, channel)));
                    }
                }
            }
            Layout::Nhwc | Layout::Flat => {
                for row in 0..rows {
                    for column in 0..columns {
                        pixels.extend((0..channels).map(|channel| value(row, column, channel)));
                    }
                }
            }
        }
    }
}

/// The brightness of each pixel, with the weights of ITU-R BT.601, as in Pillow and OpenCV.
fn brightness(picture: DynamicImage) -> Vec<u8> {
    if !picture.color().has_color() {
        return picture.into_luma8().into_raw();
    }
    let pixels = picture.into_rgb8();
    let of = |pixel: &Rgb<u8>| {
        let [red, green, blue] = pixel.0.map(u32::from);
        ((19_595 * red + 38_470 * green + 7_471 * blue + (1 << 15)) >> 16) as u8
    };
    pixels.pixels().map(of).collect()
}

// === impl Part ===

impl Part {
    fn of(picture: &images::Image<'_>) -> Self {
        Self {
            left: 0.0,
            top: 0.0,
            width: picture.width().into(),
            height: picture.height().into(),
        }
    }

    /// The box between two corners, `x1, y1, x2, y2`, clipped to the image.
    fn new(corners: &[f32], picture: &images::Image<'_>) -> Result<Self, String> {
        let whole = Self::of(picture);
        let &[left, top, right, bottom] = corners else {
            return Err("has not four corners".to_owned());
        };
        if ![left, top, right, bottom].iter().all(|it| it.is_finite()) {
            return Err("has a corner that is no number".to_owned());
        }
        let across = |at: f32| f64::from(at).clamp(0.0, whole.width);
        let down = |at: f32| f64::from(at).clamp(0.0, whole.height);
        let part = Self {
            left: across(left),
            top: down(top),
            width: across(right) - across(left),
            height: down(bottom) - down(top),
        };
        if part.width <= 0.0 || part.height <= 0.0 {
            return Err(format!(
                "has no pixel of the picture, which is {} by {}",
                whole.width, whole.height
            ));
        }
        Ok(part)
    }

    /// The size to which this part is resized, and the part that remains.
    fn fitted(self, of: &ImageOptions) -> ((u32, u32), Self) {
        let (width, height) = (f64::from(of.width), f64::from(of.height));
        let (across, down) = (width / self.width, height / self.height);
        match of.fit {
            Fit::Stretch => ((of.width, of.height), self),
            Fit::Cover => {
                let scale = across.max(down);
                let (kept_width, kept_height) = (width / scale, height / scale);
                let part = Self {
                    left: self.left + (self.width - kept_width) / 2.0,
                    top: self.top + (self.height - kept_height) / 2.0,
                    width: kept_width,
                    height: kept_height,
                };
                ((of.width, of.height), part)
            }
            Fit::Contain => {
                let scale = across.min(down);
                let side = |size: f64, most: u32| ((size * scale).round() as u32).clamp(1, most);
                (
                    (side(self.width, of.width), side(self.height, of.height)),
                    self,
                )
            }
        }
    }
}
