//! What happens to an image before a model sees it.

use image::imageops::FilterType;
use serde_json::Value;

use crate::Error;

/// The side from which on ConvNeXt takes whole images, pixels.
const WHOLE_SIDE: u32 = 384;

/// How images are brought to a model's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// As small as covers it, then cut to the middle.
    Cover,
    /// Until the shorter side has so many pixels, then cut to the middle. Never smaller than what the model takes.
    ShorterSide(u32),
    /// To exactly its height and width, whatever becomes of their ratio.
    Exact,
}

/// How pixels are made of those around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest.
    Nearest,
    /// By distance, over all pixels that become one: Pillow's and torchvision's usual way.
    Bilinear,
    /// By cubic polynomials (Catmull-Rom, as Pillow's).
    Bicubic,
    /// By sinc functions over three pixels.
    Lanczos,
}

/// What happens to an image before a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// Height and width, pixels, where the model takes any.
    pub size: Option<(u32, u32)>,
    /// How they are brought to it.
    pub resize: Resize,
    /// How pixels are made.
    pub filter: Filter,
    /// What values of 0 to 255 are multiplied by.
    pub scale: f32,
    /// What is taken off then, for each channel, or one for all.
    pub mean: Vec<f32>,
    /// What is divided by then.
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
    /// What a Hugging Face export says in its `preprocessor_config.json`.
    ///
    /// # Errors
    /// When it is no JSON, or asks for what is not known here.
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
            // Older files know normalisation alone, which came with it.
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

    /// Whether a mean and a deviation are given for each of so many channels, one for all, or none.
    pub(super) fn fits(&self, channels: usize) -> bool {
        let fits = |values: &[f32]| values.len() <= 1 || values.len() == channels;
        let is_positive = |value: &f32| *value > 0.0;
        fits(&self.mean) && fits(&self.deviation) && self.deviation.iter().all(is_positive)
    }

    /// The element that a pixel's value in a channel becomes.
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
    let value: String = value.to_string().chars().take(64).collect();
    Error::Unfit(format!(
        "`preprocessor_config.json` has `{value}` as `{name}`: say with `--image-size`, `--image-resize`, `--image-mean` and `--image-std` what \
         is to happen"
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

/// Whether images of which nothing is cut out become a square whatever their ratio: to ViT and its kin a number is the
/// side of that, and ConvNeXt cuts from none of so many pixels.
fn is_stretched(side: u32, config: &Value) -> bool {
    match config["crop_pct"].is_null() {
        true => config["size"].is_u64(),
        false => side >= WHOLE_SIDE,
    }
}

/// ConvNeXt resizes to more than it then cuts out, by a share.
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
