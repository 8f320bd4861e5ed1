//! How images of a folder become inputs.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;

use crate::cli::Error;

/// How images of a folder become inputs.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Images of a folder")]
pub struct Images {
    /// Height and width to which images are cropped, such as 224 or 224x192, if the model takes any size.
    #[arg(long, value_name = "PIXELS", value_parser = size)]
    pub image_size: Option<(u32, u32)>,
    /// Length to which the shorter side of images is resized before cropping [default: the least that covers the size
    /// that the model takes].
    #[arg(long, value_name = "PIXELS")]
    pub image_resize: Option<NonZeroU32>,
    /// Value that is subtracted from the values of each channel, which are 0 to 1 [default: nothing].
    #[arg(
        long,
        value_name = "R,G,B",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub image_mean: Vec<f32>,
    /// Value by which the values of each channel are then divided [default: 1].
    #[arg(long, value_name = "R,G,B", value_delimiter = ',', value_parser = deviation)]
    pub image_std: Vec<f32>,
    /// Number of images to take, evenly from all [default: as many as the service reads by default, 1 GiB].
    #[arg(long, value_name = "COUNT")]
    pub images: Option<NonZeroUsize>,
}

/// `224` or `224x192`: height and width.
fn size(text: &str) -> Result<(u32, u32), String> {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    let side = |text: &str| text.parse::<NonZeroU32>().map(NonZeroU32::get);
    match (side(height), side(width)) {
        (Ok(height), Ok(width)) => Ok((height, width)),
        _ => Err("it must be a number of pixels, or HEIGHTxWIDTH".to_owned()),
    }
}

fn deviation(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("it must be a positive number".to_owned()),
    }
}

// === impl Images ===

impl Images {
    /// Whether anything is said about what happens to an image.
    pub fn are_given(&self) -> bool {
        let sizes = self.image_size.is_some() || self.image_resize.is_some();
        sizes || !(self.image_mean.is_empty() && self.image_std.is_empty())
    }

    /// For validation sets that are no folders of images.
    ///
    /// # Errors
    /// When something was said that would change nothing.
    pub fn check_unused(&self) -> Result<(), Error> {
        if self.are_given() || self.images.is_some() {
            let text = "`--image-..` and `--images` are for folders of images: name one with `--validation`";
            return Err(Error::Usage(text.to_owned()));
        }
        Ok(())
    }
}
