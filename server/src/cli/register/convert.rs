//! Models that are no ONNX files yet: pickles are converted here, in a Python that their owner names, and the service sees
//! ONNX alone.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::Error;

/// What is run there.
const SCRIPT: &str = include_str!("convert.py");

/// Suffixes of what is converted.
const PICKLES: [&str; 3] = ["pkl", "pickle", "joblib"];

/// Suffixes of other models, and what writes them as ONNX.
const OTHERS: [(&str, &str); 6] = [
    ("pt", PYTORCH),
    ("pth", PYTORCH),
    ("pt2", PYTORCH),
    ("keras", KERAS),
    ("h5", KERAS),
    ("safetensors", HUGGING_FACE),
];
const PYTORCH: &str = "`torch.onnx.export(model, (sample,), \"model.onnx\", dynamic_shapes=({0: torch.export.Dim(\"batch\")},))`";
const KERAS: &str = "`model.export(\"model.onnx\", format=\"onnx\")`";
const HUGGING_FACE: &str = "`optimum-cli export onnx --model FOLDER FOLDER`";

/// How a pickle is converted.
#[derive(Debug, Args)]
pub struct Conversion {
    /// The Python that has the library of a pickled model, and skl2onnx or onnxmltools: there `--model FILE.pkl`,
    /// `.pickle` or `.joblib` of scikit-learn, LightGBM or XGBoost is written as ONNX. The service sees ONNX alone.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// The pickled model comes from somebody whom you trust: loading it runs the code that it holds.
    #[arg(long, requires = "python")]
    trust: bool,
}

/// The ONNX file of a model that was converted; it goes with this.
#[derive(Debug)]
pub struct Converted {
    folder: TempDir,
}

impl Converted {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("model.onnx")
    }
}

impl Conversion {
    /// Converts a model that is a pickle; `None` where it is no file of another library.
    ///
    /// # Errors
    /// What is missing, or has to be said before.
    pub fn convert(
        &self,
        model: &Path,
        validation: Option<&Path>,
        is_quiet: bool,
    ) -> Result<Option<Converted>, Error> {
        let suffix = model.extension().and_then(|suffix| suffix.to_str());
        let suffix = suffix.map(str::to_lowercase).unwrap_or_default();
        let shown = model.display();
        if let Some((_, how)) = OTHERS.iter().find(|(other, _)| *other == suffix) {
            return Err(Error::Usage(format!(
                "`{shown}` is no ONNX file: its library writes one, {how} (docs/models.md)"
            )));
        }
        if model.join("saved_model.pb").is_file() {
            return Err(Error::Usage(format!(
                "`{shown}` is a model of TensorFlow: `python -m tf2onnx.convert --saved-model {shown} --output model.onnx` \
                 writes it as ONNX"
            )));
        }
        if !PICKLES.contains(&suffix.as_str()) {
            return Ok(None);
        }
        let Some(python) = &self.python else {
            return Err(Error::Usage(format!(
                "`{shown}` is a pickle: name the Python that has its library and skl2onnx or onnxmltools, \
                 `--python venv/bin/python`; loading a pickle runs the code that it holds"
            )));
        };
        self.check_trust(model)?;
        run(python, model, validation, is_quiet).map(Some)
    }

    fn check_trust(&self, model: &Path) -> Result<(), Error> {
        let shown = model.display();
        if self.trust {
            return Ok(());
        }
        let refused = Error::Usage(format!(
            "loading `{shown}` runs the code that it holds: say with `--trust` that it comes from somebody whom you trust"
        ));
        if !std::io::stdin().is_terminal() {
            return Err(refused);
        }
        eprint!(
            "Loading `{shown}` runs the code that it holds. Do you trust whoever made it? [y/N] "
        );
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            true => Ok(()),
            false => Err(refused),
        }
    }
}

fn run(
    python: &Path,
    model: &Path,
    validation: Option<&Path>,
    is_quiet: bool,
) -> Result<Converted, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    let folder = TempDir::new().map_err(failed(Path::new("a temporary folder")))?;
    let converted = Converted { folder };
    let mut child = Command::new(python)
        .arg("-")
        .arg(model)
        .arg(validation.unwrap_or(Path::new("")))
        .arg(converted.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed(python))?;
    if let Some(mut script) = child.stdin.take() {
        script
            .write_all(SCRIPT.as_bytes())
            .map_err(failed(python))?;
    }
    let output = child.wait_with_output().map_err(failed(python))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said: Vec<Value> = said.collect();
    let text = |name: &str| said.iter().find_map(|it| it[name].as_str());
    let (shown, interpreter) = (model.display(), python.display());
    if let Some(package) = text("missing") {
        return Err(Error::Usage(format!(
            "`{interpreter}` lacks the package `{package}`: `{interpreter} -m pip install {package}`"
        )));
    }
    if let Some(why) = text("refused") {
        return Err(Error::Usage(format!("`{shown}`: {why}")));
    }
    if !output.status.success() || !converted.path().is_file() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it ended without a word");
        return Err(Error::Usage(format!(
            "`{shown}` cannot be loaded by `{interpreter}`: {last}"
        )));
    }
    if !is_quiet {
        let told = said
            .iter()
            .filter_map(|it| it["note"].as_str().or(it["did"].as_str()));
        told.for_each(|line| eprintln!("{line}"));
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, conversion: &Conversion) -> String {
        let refused = conversion.convert(Path::new(name), None, true);
        refused.expect_err("is refused").to_string()
    }

    #[test]
    fn files_of_other_libraries_are_named_with_what_writes_them_as_onnx() {
        let none = Conversion {
            python: None,
            trust: false,
        };
        for (name, says) in [
            ("m.pt", "torch.onnx.export"),
            ("m.PTH", "torch.onnx.export"),
            ("m.keras", "model.export"),
            ("m.safetensors", "optimum-cli"),
            ("m.pkl", "--python"),
            ("m.joblib", "runs the code"),
        ] {
            let refused = refusal(name, &none);
            assert!(refused.contains(says), "{refused}");
        }
        assert!(
            none.convert(Path::new("m.onnx"), None, true)
                .expect("is one")
                .is_none()
        );
    }
}
