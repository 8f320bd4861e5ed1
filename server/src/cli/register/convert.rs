//! Models that are not ONNX files: they are converted here, in a Python that the user names, and the service sees ONNX
//! alone.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use sextant_formats::frameworks::{self, FrameworkFormat, Library};
use tempfile::TempDir;

use crate::cli::{Error, output::tell};

use super::options::Images;

mod child;

/// Files of a model's folder that say something about the model: they go with the ONNX file.
const DESCRIPTIONS: [&str; 2] = ["config.json", "preprocessor_config.json"];

/// How a model of another library is converted.
#[derive(Debug, Args)]
pub struct Conversion {
    /// The Python interpreter that converts a model that is not an ONNX file. It needs the library that wrote the
    /// model, and the library that writes the model as ONNX: skl2onnx or onnxmltools for a pickle of scikit-learn,
    /// LightGBM or XGBoost, onnxscript for a file of PyTorch, optimum-onnx or transformers for a folder of Hugging
    /// Face, tf2onnx for Keras and TensorFlow. The service receives only the ONNX file.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Confirm that you trust the source of the model: loading a pickle, an exported program of PyTorch or a folder
    /// of Hugging Face that contains code runs the code in it.
    #[arg(long, requires = "python")]
    trust: bool,
    /// Also keep the converted ONNX file under this name.
    #[arg(long, value_name = "FILE", requires = "python")]
    keep_onnx: Option<PathBuf>,
}

/// The ONNX file of a model that was converted; it goes with this.
#[derive(Debug)]
pub struct ConvertedModel {
    folder: TempDir,
}

/// What is converted, and what is known of its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// A file or a folder.
    pub model: &'a Path,
    /// Its validation set.
    pub validation: Option<&'a Path>,
    /// How images of a folder become inputs.
    pub images: &'a Images,
}

/// An error of the conversion with its code; `docs/conversion.md` lists them.
fn error(code: &'static str, text: String) -> Error {
    Error::Conversion { code, text }
}

/// What a kind is called in messages, and between the command and its scripts.
fn names(saved: &FrameworkFormat) -> (&'static str, &'static str) {
    match saved {
        FrameworkFormat::Pickle => ("a pickle", "pickle"),
        FrameworkFormat::TorchScript => ("a program of TorchScript", "torch_script"),
        FrameworkFormat::ExportedProgram => ("an exported program of PyTorch", "exported_program"),
        FrameworkFormat::TorchModule => ("a pickled module of PyTorch", "torch_module"),
        FrameworkFormat::Weights(_) => ("a file of weights", "weights"),
        FrameworkFormat::HuggingFace(_) => ("a model of Hugging Face", "hugging_face"),
        FrameworkFormat::SavedModel => ("a SavedModel of TensorFlow", "saved_model"),
        FrameworkFormat::Keras | FrameworkFormat::Hdf5 => ("a model of Keras", "keras"),
    }
}

/// What a Python needs for it.
fn needs(saved: &FrameworkFormat) -> &'static str {
    match saved {
        FrameworkFormat::Pickle => "its library and skl2onnx or onnxmltools",
        FrameworkFormat::TorchScript => "torch and onnx",
        FrameworkFormat::ExportedProgram
        | FrameworkFormat::TorchModule
        | FrameworkFormat::Weights(_) => "torch, onnx and onnxscript",
        FrameworkFormat::HuggingFace(_) => {
            "optimum-onnx, or transformers, torch, onnx and onnxscript"
        }
        FrameworkFormat::SavedModel | FrameworkFormat::Keras | FrameworkFormat::Hdf5 => {
            "tensorflow and tf2onnx"
        }
    }
}

/// Why loading it runs code that it holds; `None` where it does not.
fn danger(saved: &FrameworkFormat) -> Option<&'static str> {
    match saved {
        FrameworkFormat::Pickle | FrameworkFormat::TorchModule => {
            Some("runs the code that it holds")
        }
        FrameworkFormat::ExportedProgram => {
            Some("reads pickles in it, which run the code that they hold")
        }
        FrameworkFormat::HuggingFace(found) if found.has_code => {
            Some("runs the Python files in it")
        }
        FrameworkFormat::HuggingFace(found) if found.has_pickles => {
            Some("reads `pytorch_model.bin`, a pickle, which runs the code that it holds")
        }
        _ => None,
    }
}

/// What to do with weights alone.
fn of_weights(library: Library) -> &'static str {
    match library {
        Library::PyTorch => {
            "it holds weights alone, without the model that they belong to: in the program that has the model's class, load them \
             into it and save an exported program, `torch.export.save(torch.export.export(model, (sample,)), \"model.pt2\")`, or \
             the model itself, `torch.save(model, \"model.pt\")`"
        }
        Library::Keras => {
            "it holds weights alone, without the model that they belong to: save the model, `model.save(\"model.keras\")`"
        }
        Library::HuggingFace => {
            "it holds weights alone, without the model that they belong to: name the folder that has it beside its `config.json`"
        }
    }
}

// === impl ConvertedModel ===

impl ConvertedModel {
    /// The folder with `model.onnx`, and with what the model's own folder says about it.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("onnx")
    }

    fn file(&self) -> PathBuf {
        self.path().join("model.onnx")
    }

    fn create() -> Result<Self, Error> {
        let temporary = std::env::temp_dir();
        let folder = TempDir::new().map_err(failed(&temporary))?;
        let converted = Self { folder };
        std::fs::create_dir(converted.path()).map_err(failed(&temporary))?;
        Ok(converted)
    }

    /// Takes over what a folder says about its model.
    fn describe(&self, model: &Path) -> Result<(), Error> {
        for name in DESCRIPTIONS {
            let (from, to) = (model.join(name), self.path().join(name));
            if from.is_file() && !to.exists() {
                std::fs::copy(&from, to).map_err(failed(&from))?;
            }
        }
        Ok(())
    }

    /// Copies the file, and weights beside it, to where its owner wants it.
    fn keep(&self, target: &Path) -> Result<(), Error> {
        let beside = super::data_files(&self.file(), &[])?;
        let place = |file: &PathBuf| target.with_file_name(file.file_name().unwrap_or_default());
        // The file names its weights, so they have the same name everywhere.
        let taken = beside.iter().map(place).find(|to| to.exists());
        if let Some(taken) = taken.filter(|_| !target.exists()) {
            return Err(Error::Usage(format!(
                "`{}` is there already, as another model's, and the weights of `{}` would have this name: keep it in a folder \
                 of its own",
                taken.display(),
                target.display()
            )));
        }
        std::fs::copy(self.file(), target).map_err(failed(target))?;
        for file in &beside {
            let to = place(file);
            std::fs::copy(file, &to).map_err(failed(&to))?;
        }
        Ok(())
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

// === impl Conversion ===

impl Conversion {
    /// Converts a model of another library; `None` where it is none.
    ///
    /// # Errors
    /// What is missing, or has to be said before.
    pub async fn convert(
        &self,
        source: Source<'_>,
        is_quiet: bool,
    ) -> Result<Option<ConvertedModel>, Error> {
        let model = source.model;
        let Some(saved) = frameworks::of(model).map_err(failed(model))? else {
            return Ok(None);
        };
        let shown = model.display();
        let (what, kind) = names(&saved);
        if let FrameworkFormat::Weights(library) = saved {
            let text = format!("`{shown}`: {}", of_weights(library));
            return Err(error("conversion_weights_alone", text));
        }
        let Some(python) = &self.python else {
            let danger = danger(&saved).map_or_else(String::new, |it| format!("; loading it {it}"));
            let text = format!(
                "`{shown}` is {what}: name a Python that has {}, `--python venv/bin/python`{danger}",
                needs(&saved)
            );
            return Err(error("conversion_python_needed", text));
        };
        if let Some(danger) = danger(&saved) {
            self.check_trust(model, danger)?;
        }
        let converted = ConvertedModel::create()?;
        let mut request = self.request(&source, &saved);
        request["kind"] = kind.into();
        request["target"] = converted.file().display().to_string().into();
        let child = child::Child { python, model };
        child
            .run(converted.folder.path(), &request, is_quiet)
            .await?;
        if !converted.file().is_file() {
            let text = format!(
                "`{shown}`: the conversion in `{}` wrote no file",
                python.display()
            );
            return Err(error("conversion_failed", text));
        }
        converted.describe(model)?;
        if let Some(target) = &self.keep_onnx {
            converted.keep(target)?;
        }
        if matches!(&saved, FrameworkFormat::HuggingFace(found) if found.has_tokenizer) && !is_quiet
        {
            let tokenizer = model.join("tokenizer.json");
            tell(&format!(
                "the model takes tokens: a pipeline makes them of text with `{}` (docs/pipelines.md)",
                tokenizer.display()
            ));
        }
        Ok(Some(converted))
    }

    fn request(&self, source: &Source<'_>, saved: &FrameworkFormat) -> Value {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let images = source.validation.is_some_and(Path::is_dir);
        let sample = source
            .images
            .image_size
            .filter(|_| images)
            .map(|(height, width)| [3, height, width]);
        let (architecture, has_code) = match saved {
            FrameworkFormat::HuggingFace(found) => (found.architecture.clone(), found.has_code),
            _ => (None, false),
        };
        json!({
            "model": absolute(source.model).display().to_string(),
            "validation": source.validation.map(|path| absolute(path).display().to_string()),
            "trusted": self.trust || danger(saved).is_some(),
            "runs_code": has_code,
            "architecture": architecture,
            "sample": sample,
        })
    }

    fn check_trust(&self, model: &Path, danger: &str) -> Result<(), Error> {
        let shown = model.display();
        if self.trust {
            return Ok(());
        }
        let refused = error(
            "conversion_trust_needed",
            format!(
                "loading `{shown}` {danger}: say with `--trust` that it comes from somebody whom you trust"
            ),
        );
        if !std::io::stdin().is_terminal() {
            return Err(refused);
        }
        let question = format!("Loading `{shown}` {danger}. Do you trust whoever made it? [y/N] ");
        write!(std::io::stderr(), "{question}").ok();
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            true => Ok(()),
            false => Err(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Conversion = Conversion {
        python: None,
        trust: false,
        keep_onnx: None,
    };

    #[test]
    fn a_kept_file_takes_no_weights_from_another() {
        let exports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/exports");
        let weights = "sklearn-external-data.onnx.data";
        let converted = ConvertedModel::create().expect("a folder");
        let model = exports.join("sklearn-external-data.onnx");
        std::fs::copy(model, converted.file()).expect("it is copied");
        std::fs::copy(exports.join(weights), converted.path().join(weights)).expect("it is copied");
        let kept = tempfile::tempdir().expect("a folder");
        let first = kept.path().join("first.onnx");
        converted.keep(&first).expect("nothing is there");
        converted.keep(&first).expect("it is the same once more");
        assert!(kept.path().join(weights).is_file());
        let second = kept.path().join("second.onnx");
        let refused = converted.keep(&second).expect_err("refused").to_string();
        assert!(refused.contains(weights), "{refused}");
        assert!(!second.exists());
    }

    /// What is said of a file that its library has written.
    async fn refusal(name: &str) -> (&'static str, String) {
        let model = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/saved")
            .join(name);
        let images = Images::default();
        let source = Source {
            model: &model,
            validation: None,
            images: &images,
        };
        match NONE.convert(source, true).await {
            Err(Error::Conversion { code, text }) => (code, text),
            other => panic!("`{name}`: {other:?}"),
        }
    }

    #[tokio::test]
    async fn files_of_other_libraries_are_named_with_what_converts_them() {
        for (name, code, says) in [
            ("script.pt", "conversion_python_needed", "torch and onnx"),
            ("module.pt", "conversion_python_needed", "runs the code"),
            ("program.pt2", "conversion_python_needed", "pickles"),
            ("dense.keras", "conversion_python_needed", "tf2onnx"),
            ("dense.h5", "conversion_python_needed", "model of Keras"),
            ("saved_model", "conversion_python_needed", "TensorFlow"),
            (
                "checkpoint.pt",
                "conversion_weights_alone",
                "torch.export.save",
            ),
            ("dense.weights.h5", "conversion_weights_alone", "model.save"),
        ] {
            let (found, text) = refusal(name).await;
            assert_eq!(found, code, "{text}");
            assert!(text.contains(says), "{text}");
        }
    }
}
