//! Validation sets in formats that the service does not read: they are converted here.

use std::{
    fs::File,
    io::{BufWriter, Read},
    path::{Path, PathBuf},
};

use sextant_datasets::{
    self as datasets,
    images::{self, Preprocessing, Resize},
    parquet,
};
use sextant_types::{Signature, TensorSpec};
use sextant_variant_gen::validation::Limits;

use super::options::Images;
use crate::cli::{Error, output::tell, upload};

/// What Hugging Face calls what happens to an image.
const PREPROCESSOR: &str = "preprocessor_config.json";

/// A validation set that can be sent.
#[derive(Debug)]
pub struct Dataset {
    /// The file.
    pub path: PathBuf,
    /// The classes, where the folders of images name them.
    pub classes: Vec<String>,
    /// Removed when it has been sent.
    _converted: Option<tempfile::NamedTempFile>,
}

impl Dataset {
    /// Converts what has to be: a folder of images, or Parquet. `model` is its file, and what reads its inputs.
    pub fn prepare(
        path: &Path,
        model: (&Path, impl FnOnce() -> Result<Signature, Error>),
        options: &Images,
        is_quiet: bool,
    ) -> Result<Self, Error> {
        if path.is_dir() {
            return Self::images(path, model, options, is_quiet);
        }
        options.check_unused()?;
        match is_parquet(path)? {
            true => Self::parquet(path),
            false => Ok(Self {
                path: path.to_owned(),
                classes: Vec::new(),
                _converted: None,
            }),
        }
    }

    /// A set in Parquet as a file that can be read without its library; `None` where it is in another form.
    pub fn table(path: &Path) -> Result<Option<Self>, Error> {
        match path.is_file() && is_parquet(path)? {
            true => Self::parquet(path).map(Some),
            false => Ok(None),
        }
    }

    fn parquet(path: &Path) -> Result<Self, Error> {
        let failed = |error| refused(path, &error);
        let converted = temporary()?;
        let file = File::open(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        parquet::convert(file, BufWriter::new(converted.as_file())).map_err(failed)?;
        Ok(Self::converted(converted, Vec::new()))
    }

    fn images(
        path: &Path,
        (model, signature): (&Path, impl FnOnce() -> Result<Signature, Error>),
        options: &Images,
        is_quiet: bool,
    ) -> Result<Self, Error> {
        let failed = |error| refused(path, &error);
        let mut folder = images::Folder::open(path).map_err(failed)?;
        let input = input(signature()?)?;
        let how = preprocessing(model, options)?;
        let bytes = images::Folder::image_bytes(&input, &how).map_err(failed)?;
        let all = folder.len();
        let most = options
            .images
            .map_or_else(|| default_images(bytes), |it| it.get());
        folder.keep(most);
        if options.images.is_none() && folder.len() < all && !is_quiet {
            tell(&format!(
                "{} of {all} images are taken, evenly: as many as the service reads by default; `--images` takes \
                 another number",
                folder.len()
            ));
        }
        let converted = temporary()?;
        let bar = match is_quiet {
            true => indicatif::ProgressBar::hidden(),
            false => upload::bar("images", folder.len() as u64 * bytes),
        };
        let out = BufWriter::new(converted.as_file());
        let written = folder.write(&input, &how, out, || bar.inc(bytes));
        bar.finish_and_clear();
        written.map_err(failed)?;
        Ok(Self::converted(converted, folder.classes().to_vec()))
    }

    fn converted(file: tempfile::NamedTempFile, classes: Vec<String>) -> Self {
        Self {
            path: file.path().to_owned(),
            classes,
            _converted: Some(file),
        }
    }
}

fn temporary() -> Result<tempfile::NamedTempFile, Error> {
    tempfile::NamedTempFile::new().map_err(|source| Error::Io {
        path: std::env::temp_dir(),
        source,
    })
}

fn refused(path: &Path, error: &datasets::Error) -> Error {
    Error::Usage(format!("`{}`: {error}", path.display()))
}

fn is_parquet(path: &Path) -> Result<bool, Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut beginning = Vec::new();
    let length = parquet::MAGIC.len() as u64;
    file.take(length)
        .read_to_end(&mut beginning)
        .map_err(failed)?;
    Ok(beginning == parquet::MAGIC)
}

/// As many as fit into what the service reads by default.
fn default_images(bytes: u64) -> usize {
    let limits = Limits::default();
    // The labels take little of it.
    let fit = limits.bytes * 99 / 100 / bytes.max(1);
    usize::try_from(fit)
        .unwrap_or(limits.records)
        .min(limits.records)
}

/// The input that takes the images.
fn input(signature: Signature) -> Result<TensorSpec, Error> {
    match <[TensorSpec; 1]>::try_from(signature.inputs) {
        Ok([only]) => Ok(only),
        Err(inputs) => {
            let names = inputs.iter().map(|input| format!("`{}`", input.name));
            Err(Error::Usage(format!(
                "the model takes several inputs, {}, and a folder of images has one: save an `.npz` archive \
                 with an array for each",
                names.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

/// What is asked for, or what lies beside the model, or the usual.
fn preprocessing(model: &Path, options: &Images) -> Result<Preprocessing, Error> {
    let folder = model.parent().unwrap_or(Path::new(""));
    // Hugging Face puts models into `onnx` below it.
    let places = [
        folder.join(PREPROCESSOR),
        folder.join("..").join(PREPROCESSOR),
    ];
    let config = places.iter().find_map(|path| std::fs::read(path).ok());
    let mut how = match config.filter(|_| !options.are_given()) {
        Some(config) => {
            Preprocessing::read(&config).map_err(|error| Error::Usage(error.to_string()))?
        }
        None => Preprocessing::default(),
    };
    how.size = options.image_size.or(how.size);
    if let Some(side) = options.image_resize {
        how.resize = Resize::ShorterSide(side.get());
    }
    if !options.image_mean.is_empty() {
        how.mean.clone_from(&options.image_mean);
    }
    if !options.image_std.is_empty() {
        how.deviation.clone_from(&options.image_std);
    }
    Ok(how)
}
