//! A folder as an exporter writes it: finds the model among its files, and the files beside it.

use std::path::{Path, PathBuf};

use sextant_formats::hugging_face::{self, CONFIG, VALIDATION};

use crate::cli::Error;

/// What a folder holds.
#[derive(Debug, PartialEq)]
pub struct Folder {
    /// The ONNX file.
    pub model: PathBuf,
    /// The names of the classes, where a Hugging Face model says what its classes are.
    pub classes: Vec<String>,
}

impl Folder {
    /// Looks into a folder; `None` where the path is none.
    pub fn open(path: &Path) -> Result<Option<Self>, Error> {
        if !path.is_dir() {
            return Ok(None);
        }
        Ok(Some(Self {
            model: model(path)?,
            classes: classes(path),
        }))
    }
}

/// The validation set in a model's folder, where there is one.
pub fn validation(folder: &Path) -> Option<PathBuf> {
    let files = VALIDATION.iter().map(|name| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}

/// `model.onnx`, also in the folder `onnx` where Hugging Face keeps it, or the only ONNX file.
fn model(folder: &Path) -> Result<PathBuf, Error> {
    let inner = folder.join("onnx");
    let mut found = Vec::new();
    for place in [folder, &inner] {
        let usual = place.join("model.onnx");
        if usual.is_file() {
            return Ok(usual);
        }
        found.extend(onnx_files(place)?);
    }
    found.sort();
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => Err(Error::Usage(format!(
            "there is no ONNX file in `{}`: export the model into it first (docs/models.md says how for each library)",
            folder.display()
        ))),
        several => {
            let names = several.iter().map(|file| format!("`{}`", file.display()));
            Err(Error::Usage(format!(
                "there are several ONNX files in `{}`: name one with `--model`, of {}",
                folder.display(),
                names.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

fn onnx_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |source| Error::Io {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == "onnx") && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// The classes that the folder's configuration names.
fn classes(folder: &Path) -> Vec<String> {
    let config = std::fs::read(folder.join(CONFIG));
    config.map_or_else(|_| Vec::new(), |config| hugging_face::classes(&config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("is created");
            std::fs::write(path, content).expect("is written");
        }
        folder
    }

    #[test]
    fn a_hugging_face_folder_says_its_model_and_its_classes() {
        let config = r#"{"architectures": ["BertForSequenceClassification"], "id2label": {"1": "good", "0": "bad"}}"#;
        let files = [
            ("config.json", config),
            ("tokenizer.json", "{}"),
            ("onnx/model.onnx", ""),
            ("onnx/model_quantized.onnx", ""),
            ("validation.jsonl", ""),
        ];
        let folder = folder(&files);
        let found = Folder::open(folder.path())
            .expect("reads")
            .expect("a folder");
        assert_eq!(found.model, folder.path().join("onnx/model.onnx"));
        assert_eq!(found.classes, ["bad", "good"]);
        assert_eq!(
            validation(folder.path()),
            Some(folder.path().join("validation.jsonl"))
        );
    }

    #[test]
    fn the_only_file_is_the_model_whatever_its_name() {
        let one = folder(&[("pipeline.onnx", ""), ("pipeline.joblib", "")]);
        let found = Folder::open(one.path()).expect("reads").expect("a folder");
        assert_eq!(found.model, one.path().join("pipeline.onnx"));
        assert_eq!((found.classes, validation(one.path())), (Vec::new(), None));
        assert_eq!(Folder::open(&found.model).expect("reads"), None);
        for (files, said) in [
            (&[("a.onnx", ""), ("b.onnx", "")][..], "`--model`"),
            (&[("pipeline.joblib", "")], "export the model"),
        ] {
            let folder = folder(files);
            let error = Folder::open(folder.path()).expect_err("is refused");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
