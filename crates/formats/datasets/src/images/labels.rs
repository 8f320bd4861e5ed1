//! Finds the label of each image.

use super::*;

/// The usual names of lists of labels; the second is Hugging Face's.
const LISTS: [&str; 2] = ["labels.csv", "metadata.csv"];

/// Names of the column with the files.
const FILES: [&str; 5] = ["file", "file_name", "filename", "image", "path"];

/// Names of the column with the labels.
const LABELS: [&str; 3] = ["label", "labels", "class"];

/// An image and its label.
#[derive(Debug, Clone)]
pub(super) struct LabelledImage {
    pub(super) file: PathBuf,
    label: Option<String>,
}

/// The images of a folder in order, and the classes in the names of folders.
pub(super) fn find(folder: &Path) -> Result<(Vec<LabelledImage>, Vec<String>), Error> {
    for name in LISTS {
        let list = folder.join(name);
        if list.is_file() {
            return Ok((listed(folder, &list)?, Vec::new()));
        }
    }
    let (files, folders) = entries(folder)?;
    let mut images: Vec<LabelledImage> = files
        .into_iter()
        .map(|file| LabelledImage { file, label: None })
        .collect();
    let mut classes = Vec::new();
    for of_class in folders {
        let name = of_class
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (files, _) = entries(&of_class)?;
        if files.is_empty() {
            continue;
        }
        images.extend(files.into_iter().map(|file| LabelledImage {
            file,
            label: Some(name.clone()),
        }));
        classes.push(name);
    }
    let (with, without): (Vec<_>, Vec<_>) = images.iter().partition(|it| it.label.is_some());
    if let (Some(_), Some(alone)) = (with.first(), without.first()) {
        return Err(Error::Unfit(format!(
            "`{}` lies beside the folders of the classes: move it into one",
            alone.file.display()
        )));
    }
    // Numbers are the positions of classes.
    if classes.iter().all(|name| name.parse::<u64>().is_ok()) {
        classes.clear();
    }
    Ok((images, classes))
}

fn listed(folder: &Path, list: &Path) -> Result<Vec<LabelledImage>, Error> {
    let wrong = |why: String| Error::Unfit(format!("`{}`: {why}", list.display()));
    let mut reader = csv::Reader::from_path(list).map_err(|error| wrong(error.to_string()))?;
    let head = reader.headers().map_err(|error| wrong(error.to_string()))?;
    let column = |names: &[&str]| head.iter().position(|it| names.contains(&it.trim()));
    let (Some(file), Some(label)) = (column(&FILES), column(&LABELS)) else {
        return Err(wrong(
            "it needs the columns `file` and `label` in its first line".to_owned(),
        ));
    };
    let records = reader.records().map(|record| {
        let record = record.map_err(|error| wrong(error.to_string()))?;
        let cell = |at| record.get(at).unwrap_or_default().trim();
        Ok(LabelledImage {
            file: folder.join(cell(file)),
            label: Some(cell(label).to_owned()),
        })
    });
    records.collect()
}

/// The images and the folders in a folder, sorted.
fn entries(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let failed = |source| Error::File {
        path: folder.to_owned(),
        source,
    };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            folders.push(path);
        } else if is_image(&path) {
            files.push(path);
        }
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    let extension = extension.to_string_lossy().to_ascii_lowercase();
    matches!(extension.as_str(), "jpg" | "jpeg" | "png")
}

/// The labels as an `.npy` file: integers or floats if all are, text otherwise. `None` if there are none.
pub(super) fn array(images: &[LabelledImage]) -> Result<Option<Vec<u8>>, Error> {
    let labels = images.iter().map(|image| image.label.as_deref());
    let Some(labels) = labels.collect::<Option<Vec<&str>>>() else {
        return Ok(None);
    };
    let count = labels.len() as u64;
    let integers: Option<Vec<i64>> = labels.iter().map(|it| it.parse().ok()).collect();
    let floats = || {
        labels
            .iter()
            .map(|it| it.parse().ok())
            .collect::<Option<Vec<f64>>>()
    };
    let (head, elements) = if let Some(integers) = integers {
        let head = Header::write(DataType::Int64, &[count]);
        (head, bytemuck::cast_slice(&integers).to_vec())
    } else if let Some(floats) = floats() {
        let head = Header::write(DataType::Fp64, &[count]);
        (head, bytemuck::cast_slice(&floats).to_vec())
    } else {
        let width = labels
            .iter()
            .map(|label| label.len())
            .max()
            .unwrap_or(0)
            .max(1);
        let mut elements = Vec::with_capacity(width * labels.len());
        for label in &labels {
            elements.extend_from_slice(label.as_bytes());
            elements.resize(elements.len() + width - label.len(), 0);
        }
        (Header::write_text(width, &[count]), elements)
    };
    let head = head.ok_or_else(|| Error::Unfit("the labels are too long".to_owned()))?;
    Ok(Some([head, elements].concat()))
}
