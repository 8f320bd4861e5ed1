//! Folders of images: decoded, brought to the model's size and written as an `.npz` archive.
//!
//! Images are resized until they cover the model's size, cropped to the middle, scaled to 0 to 1, and normalised if a
//! mean and a deviation are given: the usual steps for a model that was trained with torchvision or Hugging Face's
//! `AutoImageProcessor`.

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use image::{DynamicImage, ImageDecoder, ImageReader, ImageResult, Limits, Rgb};
use sextant_formats::{npy::Header, zip};
use sextant_types::{DataType, TensorSpec};

use crate::Error;

mod labels;
mod preprocessing;

pub use preprocessing::{Filter, Preprocessing, Resize};

use labels::LabelledImage;

/// Pixels that a resized image may have.
const MOST_PIXELS: u64 = 1 << 28;

/// Images of a folder, with their labels.
#[derive(Debug)]
pub struct Folder {
    images: Vec<LabelledImage>,
    /// The folders that contain the images, sorted: the classes.
    classes: Vec<String>,
}

/// The layout of an image in the model's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    height: u32,
    width: u32,
    /// 1, grey, or 3: red, green and blue.
    channels: usize,
    /// Whether each channel is a plane of its own.
    are_planes: bool,
    /// Whether elements are bytes from 0 to 255.
    are_bytes: bool,
}

// === impl Folder ===

impl Folder {
    /// Finds images and their labels: those of `labels.csv` or `metadata.csv`, or one folder for each class, or images
    /// without labels.
    ///
    /// # Errors
    /// If a folder or the list cannot be read, or there are no images.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let (images, classes) = labels::find(folder)?;
        if images.is_empty() {
            return Err(Error::Unfit(format!(
                "there are no images in `{}`: put JPEG or PNG files into it with a `labels.csv` (`file,label`), or \
                 into a folder for each class",
                folder.display()
            )));
        }
        Ok(Self { images, classes })
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether there are no images: never, once it is opened.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The names of the folders with images, if these are their classes and not numbers; sorted, as torchvision's
    /// `ImageFolder` numbers them.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Bytes of an image in the archive.
    ///
    /// # Errors
    /// If the input accepts no images.
    pub fn image_bytes(input: &TensorSpec, preprocessing: &Preprocessing) -> Result<u64, Error> {
        Ok(Layout::of(input, preprocessing)?.bytes())
    }

    /// Keeps at most `most` images, evenly from the whole folder.
    pub fn keep(&mut self, most: usize) {
        let (have, most) = (self.images.len(), most.max(1));
        if most < have {
            let places: Vec<usize> = (0..most).map(|at| at * have / most).collect();
            self.images = places.iter().map(|at| self.images[*at].clone()).collect();
        }
    }

    /// Writes the archive: an array for `input`, and `labels` if there are some. `done` is called for each image.
    ///
    /// # Errors
    /// If an image is broken, the input accepts no images, or `out` cannot be written.
    pub fn write(
        &self,
        input: &TensorSpec,
        preprocessing: &Preprocessing,
        mut out: impl Write + Seek,
        mut done: impl FnMut(),
    ) -> Result<(), Error> {
        let layout = Layout::of(input, preprocessing)?;
        let head = Header::write(layout.data_type(), &layout.shape(self.images.len()));
        let mut member = Member::begin(&mut out, &format!("{}.npy", input.name), {
            let head = head.as_ref().map_or(0, Vec::len) as u64;
            head + layout.bytes() * self.images.len() as u64
        })?;
        member.write(&head.unwrap_or_default())?;
        for image in &self.images {
            let opened = open(&image.file)?;
            let elements = layout.elements(&opened, preprocessing);
            member.write(&elements.ok_or_else(|| Error::Image {
                path: image.file.clone(),
                why: "it is far longer than wide".to_owned(),
            })?)?;
            done();
        }
        let mut members = vec![member.end()?];
        if let Some(array) = labels::array(&self.images)? {
            let mut member = Member::begin(&mut out, "labels.npy", array.len() as u64)?;
            member.write(&array)?;
            members.push(member.end()?);
        }
        out.write_all(&zip::directory_of(&members))?;
        out.flush()?;
        Ok(())
    }
}

fn open(file: &Path) -> Result<DynamicImage, Error> {
    let wrong = |why: String| Error::Image {
        path: file.to_owned(),
        why,
    };
    let reader = ImageReader::open(file).map_err(|source| Error::File {
        path: file.to_owned(),
        source,
    })?;
    // The suffix may be wrong: many a `.jpg` is a PNG.
    let reader = reader.with_guessed_format();
    let reader = reader.map_err(|error| wrong(error.to_string()))?;
    upright(reader.into_decoder()).map_err(|error| wrong(error.to_string()))
}

/// The image, turned as its EXIF data says: cameras store it in the sensor's orientation.
fn upright(decoder: ImageResult<impl ImageDecoder>) -> ImageResult<DynamicImage> {
    let mut decoder = decoder?;
    // A decoder limits its own buffers, and not the image that it fills.
    Limits::default().reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// The brightness of each pixel, with the weights of ITU-R BT.601, as in Pillow and OpenCV.
fn brightness(image: &DynamicImage) -> Vec<u8> {
    if !image.color().has_color() {
        return image.to_luma8().into_raw();
    }
    let pixels = image.to_rgb8();
    let of = |pixel: &Rgb<u8>| {
        let [red, green, blue] = pixel.0.map(u32::from);
        ((19_595 * red + 38_470 * green + 7_471 * blue + (1 << 15)) >> 16) as u8
    };
    pixels.pixels().map(of).collect()
}

// === impl Layout ===

impl Layout {
    fn of(input: &TensorSpec, preprocessing: &Preprocessing) -> Result<Self, Error> {
        let unfit = |why: &str| {
            Error::Unfit(format!(
                "input `{}` of {} {} {why}",
                input.name,
                input.data_type,
                input.shape_text()
            ))
        };
        let are_bytes = match input.data_type {
            DataType::Uint8 => true,
            DataType::Fp32 | DataType::Fp16 | DataType::Bf16 | DataType::Fp64 => false,
            _ => return Err(unfit("takes no images, which are floats or UINT8")),
        };
        if are_bytes && preprocessing.is_normalised() {
            return Err(unfit(
                "takes bytes, which cannot be normalised: leave the mean and deviation out",
            ));
        }
        let dims = match &input.shape[..] {
            [_, dims @ ..] if dims.len() == 3 => dims,
            _ => {
                return Err(unfit(
                    "takes no images: it has no four dimensions, of images, channels, height and width",
                ));
            }
        };
        let is_count = |size: Option<u64>| matches!(size, Some(1 | 3));
        let (channels, height, width, are_planes) = match *dims {
            [channels, height, width] if is_count(channels) => (channels, height, width, true),
            [height, width, channels] if is_count(channels) => (channels, height, width, false),
            _ => return Err(unfit("takes no images of 1 or 3 channels")),
        };
        let asked = preprocessing.size;
        let side = |declared: Option<u64>, asked: Option<u32>| match (declared, asked) {
            (Some(declared), Some(asked)) if declared != u64::from(asked) => Err(unfit(&format!(
                "takes no images of {asked} pixels where it says {declared}: leave the size out"
            ))),
            (Some(declared), _) => u32::try_from(declared).map_err(|_| unfit("is too large")),
            (None, Some(asked)) => Ok(asked),
            (None, None) => Err(unfit(
                "takes images of any size: say with `--image-size` which it was trained with, such as 224",
            )),
        };
        let channels = if channels == Some(1) { 1 } else { 3 };
        if !preprocessing.fits(channels) {
            return Err(unfit(&format!(
                "takes images of {channels} channels: give a mean and a deviation above 0 for each of them, or one for \
                 all"
            )));
        }
        Ok(Self {
            height: side(height, asked.map(|(height, _)| height))?,
            width: side(width, asked.map(|(_, width)| width))?,
            channels,
            are_planes,
            are_bytes,
        })
    }

    fn data_type(self) -> DataType {
        match self.are_bytes {
            true => DataType::Uint8,
            // The service converts these to narrower floats.
            false => DataType::Fp32,
        }
    }

    fn shape(self, images: usize) -> [u64; 4] {
        let (images, channels) = (images as u64, self.channels as u64);
        let (height, width) = (u64::from(self.height), u64::from(self.width));
        match self.are_planes {
            true => [images, channels, height, width],
            false => [images, height, width, channels],
        }
    }

    /// Bytes of one image.
    fn bytes(self) -> u64 {
        let [_, sizes @ ..] = self.shape(1);
        let elements: u64 = sizes.iter().product();
        elements * self.data_type().size().unwrap_or(1) as u64
    }

    /// The elements of an image in the order of the array; `None` if it becomes too large on the way.
    fn elements(self, image: &DynamicImage, preprocessing: &Preprocessing) -> Option<Vec<u8>> {
        let pixels = self.pixels(&self.fitted(image, preprocessing)?);
        let ordered: Vec<(usize, u8)> = match self.are_planes {
            true => (0..self.channels)
                .flat_map(|channel| {
                    let plane = pixels.iter().skip(channel).step_by(self.channels);
                    plane.map(move |value| (channel, *value))
                })
                .collect(),
            false => {
                let channels = (0..self.channels).cycle();
                channels.zip(pixels.iter().copied()).collect()
            }
        };
        if self.are_bytes {
            return Some(ordered.into_iter().map(|(_, value)| value).collect());
        }
        let elements = ordered.into_iter();
        let elements = elements.map(|(channel, value)| preprocessing.element(channel, value));
        let elements: Vec<f32> = elements.collect();
        Some(bytemuck::cast_slice(&elements).to_vec())
    }

    /// All channels of each pixel, row by row.
    fn pixels(self, image: &DynamicImage) -> Vec<u8> {
        match self.channels {
            1 => brightness(image),
            _ => image.to_rgb8().into_raw(),
        }
    }

    /// Resized, and cropped to the middle.
    fn fitted(self, image: &DynamicImage, preprocessing: &Preprocessing) -> Option<DynamicImage> {
        let (width, height) = (image.width().max(1), image.height().max(1));
        let (to_width, to_height) = match preprocessing.resize {
            Resize::Exact => (self.width, self.height),
            Resize::Cover => self.covering(width, height, 0),
            Resize::ShorterSide(side) => self.covering(width, height, side),
        };
        if u64::from(to_width) * u64::from(to_height) > MOST_PIXELS {
            return None;
        }
        let resized = match (to_width, to_height) == (width, height) {
            true => image.clone(),
            false => image.resize_exact(to_width, to_height, preprocessing.filter.into()),
        };
        let left = (to_width - self.width) as f64 / 2.0;
        let top = (to_height - self.height) as f64 / 2.0;
        // As torchvision's `center_crop`, which rounds halves to even.
        let (left, top) = (left.round_ties_even() as u32, top.round_ties_even() as u32);
        Some(resized.crop_imm(left, top, self.width, self.height))
    }

    /// The width and height of an image whose shorter side is `side`, or as long as needed to cover the model's size.
    fn covering(self, width: u32, height: u32, side: u32) -> (u32, u32) {
        let (width, height) = (u64::from(width), u64::from(height));
        let shorter = width.min(height);
        let at = |side: u64| (width * side / shorter, height * side / shorter);
        let mut side = u64::from(side.max(1));
        let least = |have: u64, want: u32| (u64::from(want) * shorter).div_ceil(have);
        side = side
            .max(least(width, self.width))
            .max(least(height, self.height));
        let (width, height) = at(side);
        let within = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        (within(width), within(height))
    }
}

/// A member of the archive that is being written. Its checksum is put into its header when it is known.
struct Member<'a, W> {
    out: &'a mut W,
    at: u64,
    crc: crc32fast::Hasher,
    new: zip::NewMember,
}

impl<'a, W: Write + Seek> Member<'a, W> {
    fn begin(out: &'a mut W, name: &str, bytes: u64) -> Result<Self, Error> {
        let at = out.stream_position()?;
        let new = zip::NewMember {
            name: name.to_owned(),
            bytes,
            crc: 0,
        };
        out.write_all(&new.header())?;
        let crc = crc32fast::Hasher::new();
        Ok(Self { out, at, crc, new })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.crc.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    fn end(mut self) -> Result<zip::NewMember, Error> {
        self.new.crc = self.crc.finalize();
        self.out.seek(SeekFrom::Start(self.at))?;
        self.out.write_all(&self.new.header())?;
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.new)
    }
}
