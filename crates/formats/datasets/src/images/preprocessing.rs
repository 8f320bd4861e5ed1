//! The preprocessing of an image for a model.

use image::imageops::FilterType;
use serde_json::Value;

use crate::Error;

/// The side from which ConvNeXt uses whole images, pixels.
const WHOLE_SIDE: u32 = 384;

/// How images get a model's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// To the smallest size that covers it, then cropped to the middle.
    Cover,
    /// Until the shorter side has this many pixels, then cropped to the middle. Never smaller than the model's size.
    ShorterSide(u32),
    /// To exactly its height and width, without keeping the ratio.
    Exact,
}

/// How pixels are computed from those around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest.
    Nearest,
    /// By distance, over all pixels that become one: the default of Pillow and torchvision.
    Bilinear,
    /// By cubic polynomials (Catmull-Rom, as Pillow's).
    Bicubic,
    /// By sinc functions over three pixels.
    Lanczos,
}

/// The preprocessing of an image for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// Height and width, pixels, if the model accepts any.
    pub size: Option<(u32, u32)>,
    /// How they get that size.
    pub resize: Resize,
    /// How pixels are computed.
    pub filter: Filter,
    /// Factor of the values 0 to 255.
    pub scale: f32,
    /// Subtracted after that, for each channel, or one number for all.
    pub mean: Vec<f32>,
    /// Divisor after that, for each channel, or one number for all.
    pub deviation: Vec<f32>,
}

impl Default for Preprocessing {
    fn default() -> Self {
        Self {
            size: None,
            resize: Resize::Cover,
            filter: Filter::Bilinear,
            scale: 1.0 / 255.0,
            mean: Vec::new(),
            deviation: Vec::new(),
        }
    }
}

impl From<Filter> for FilterType {
    fn from(filter: Filter) -> Self {
        match filter {
            Filter::Nearest => Self::Nearest,
            Filter::Bilinear => Self::Triangle,
            Filter::Bicubic => Self::CatmullRom,
            Filter::Lanczos => Self::Lanczos3,
        }
    }
}

// === impl Preprocessing ===

impl Preprocessing {
    /// Reads the `preprocessor_config.json` of a Hugging Face export.
    ///
    /// # Errors
    /// If it is not JSON, or asks for something that is not known here.
    pub fn read(config: &[u8]) -> Result<Self, Error> {
        let config: Value = serde_json::from_slice(config)
            .map_err(|error| Error::Unfit(format!("`preprocessor_config.json`: {error}")))?;
        let is_on = |name: &str| config[name].as_bool().unwrap_or(false);
        let mut found = Self::default();
        if is_on("do_resize") {
            found.filter = filter(&config["resample"])?;
            found.resize = match (side(&config["size"]), area(&config["size"])) {
                (_, Some(area)) => {
                    found.size = Some(area);
                    Resize::Exact
                }
                (Some(_), None) if !is_on("do_center_crop") && has_own_ratio(&config) => {
                    return Err(uneven(&config["size"]));
                }
                (Some(side), None) if !is_on("do_center_crop") && is_stretched(side, &config) => {
                    found.size = Some((side, side));
                    Resize::Exact
                }
                (Some(side), None) => Resize::ShorterSide(cropped(side, &config)),
                (None, None) => return Err(unknown("size", &config["size"])),
            };
        }
        let crop = &config["crop_size"];
        if is_on("do_center_crop") {
            let square = side(crop).map(|side| (side, side));
            found.size = Some(
                area(crop)
                    .or(square)
                    .ok_or_else(|| unknown("crop_size", crop))?,
            );
        } else if let Resize::ShorterSide(_) = found.resize {
            found.size = side(&config["size"]).map(|side| (side, side));
        }
        found.scale = match is_on("do_rescale") {
            true => config["rescale_factor"].as_f64().unwrap_or(1.0 / 255.0) as f32,
            // Older files have only normalisation, which implied it.
            false if config["do_rescale"].is_null() => found.scale,
            false => 1.0,
        };
        if is_on("do_normalize") {
            found.mean = numbers("image_mean", &config["image_mean"])?;
            found.deviation = numbers("image_std", &config["image_std"])?;
        }
        Ok(found)
    }

    /// Whether a mean or a deviation is given.
    pub fn is_normalised(&self) -> bool {
        !(self.mean.is_empty() && self.deviation.is_empty())
    }

    /// Whether a mean and a deviation are given for each of `channels` channels, one for all, or none.
    pub(super) fn fits(&self, channels: usize) -> bool {
        let fits = |values: &[f32]| values.len() <= 1 || values.len() == channels;
        let is_positive = |value: &f32| *value > 0.0;
        fits(&self.mean) && fits(&self.deviation) && self.deviation.iter().all(is_positive)
    }

    /// The element for a pixel's value in a channel.
    pub(super) fn element(&self, channel: usize, value: u8) -> f32 {
        let of = |values: &[f32], otherwise| {
            let value = values.get(channel).or(values.first());
            value.copied().unwrap_or(otherwise)
        };
        let scaled = f32::from(value) * self.scale;
        (scaled - of(&self.mean, 0.0)) / of(&self.deviation, 1.0)
    }
}

fn unknown(name: &str, value: &Value) -> Error {
    unfit(name, value, "")
}

fn uneven(size: &Value) -> Error {
    let why = " and leaves each image its ratio, but the images of a set have one size";
    unfit("size", size, why)
}

fn unfit(name: &str, value: &Value, why: &str) -> Error {
    let value: String = value.to_string().chars().take(64).collect();
    Error::Unfit(format!(
        "`preprocessor_config.json` has `{value}` as `{name}`{why}: say with `--image-size`, `--image-resize`, \
         `--image-mean` and `--image-std` what is to happen"
    ))
}

fn number(value: &Value) -> Option<u32> {
    value
        .as_u64()
        .and_then(|it| u32::try_from(it).ok())
        .filter(|it| *it > 0)
}

fn side(value: &Value) -> Option<u32> {
    number(value).or_else(|| number(&value["shortest_edge"]))
}

fn area(value: &Value) -> Option<(u32, u32)> {
    number(&value["height"]).zip(number(&value["width"]))
}

/// Whether images of which nothing is cropped keep their ratio: DETR and similar detectors limit the longer side
/// (`max_size` in older files), and pad the images of a batch.
fn has_own_ratio(config: &Value) -> bool {
    let limits = [&config["size"]["longest_edge"], &config["max_size"]];
    config["do_pad"] == true || limits.iter().any(|it| !it.is_null())
}

/// Whether images of which nothing is cropped become a square whatever their ratio. For ViT and similar models, a
/// single number is the side of that square; ConvNeXt crops nothing from images of at least a certain size.
fn is_stretched(side: u32, config: &Value) -> bool {
    match config["crop_pct"].is_null() {
        true => config["size"].is_u64(),
        false => side >= WHOLE_SIDE,
    }
}

/// ConvNeXt resizes to a larger size than it then crops, by a ratio.
fn cropped(side: u32, config: &Value) -> u32 {
    match config["crop_pct"].as_f64() {
        Some(share) if share > 0.0 && side < WHOLE_SIDE => (f64::from(side) / share) as u32,
        _ => side,
    }
}

fn numbers(name: &str, value: &Value) -> Result<Vec<f32>, Error> {
    let values = value.as_array().into_iter().flatten();
    let numbers: Option<Vec<f32>> = values.map(|it| Some(it.as_f64()? as f32)).collect();
    let numbers = numbers.filter(|numbers| !numbers.is_empty());
    numbers.ok_or_else(|| unknown(name, value))
}

/// Pillow's numbers of filters.
fn filter(value: &Value) -> Result<Filter, Error> {
    match value.as_u64() {
        Some(0) => Ok(Filter::Nearest),
        Some(1) => Ok(Filter::Lanczos),
        Some(2) | None => Ok(Filter::Bilinear),
        Some(3) => Ok(Filter::Bicubic),
        _ => Err(unknown("resample", value)),
    }
}
