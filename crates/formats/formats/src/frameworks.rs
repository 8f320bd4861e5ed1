//! Models as the libraries that trained them save them: the content of a file or a folder, found without running any of
//! it.
//!
//! - PyTorch's `torch.save` writes a zip with the pickle `NAME/data.pkl`, or, before 1.6, several pickles in a row. The
//!   classes that the pickle names distinguish a module from weights alone.
//! - `torch.jit.save` writes such a zip with `NAME/code/` and `NAME/constants.pkl`; `torch.export.save` one with
//!   `NAME/archive_format` and `NAME/models/`, or with `serialized_exported_program.json` before PyTorch 2.8.
//! - Keras 3 writes a zip with `config.json`, `metadata.json` and `model.weights.h5`, Keras 2 a file of HDF5.
//! - A SavedModel is a folder with `saved_model.pb`, a model of Hugging Face one with `config.json` and weights.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use serde_json::Value;

use crate::{hugging_face::CONFIG, zip};

mod members;
pub mod pickle;

/// The content of a file or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameworkFormat {
    /// A pickle, or what joblib writes: an estimator of scikit-learn, LightGBM or XGBoost, or anything else.
    Pickle,
    /// A program of TorchScript.
    TorchScript,
    /// A program of `torch.export`.
    ExportedProgram,
    /// A pickled module of PyTorch, or anything else by `torch.save` that is more than weights.
    TorchModule,
    /// Weights without the model that they belong to.
    Weights(Library),
    /// A folder of Hugging Face without an ONNX file.
    HuggingFace(HuggingFace),
    /// A folder of TensorFlow.
    SavedModel,
    /// An archive of Keras 3.
    Keras,
    /// A model of Keras in HDF5.
    Hdf5,
}

/// The library of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// PyTorch.
    PyTorch,
    /// Keras.
    Keras,
    /// Hugging Face: a file from a model's folder.
    HuggingFace,
}

/// What a Hugging Face model's folder says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HuggingFace {
    /// The class of the model, such as `BertForSequenceClassification`.
    pub architecture: Option<String>,
    /// Whether its weights are pickles.
    pub has_pickles: bool,
    /// Whether it brings Python code of its own (`auto_map`).
    pub has_code: bool,
    /// Whether there is a `tokenizer.json`.
    pub has_tokenizer: bool,
}

/// Largest pickle inside an archive that is read, bytes; a larger one counts as more than weights.
const MAX_PICKLE_BYTES: u64 = 64 << 20;
/// Pickles at the start of a file of PyTorch before 1.6: a number, the protocol, the system, and what was saved.
const LEGACY_PICKLES: usize = 4;
/// The beginning of the first of these.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Suffixes of pickles that are not PyTorch's.
const PICKLES: [&str; 3] = ["pkl", "pickle", "joblib"];
/// Suffixes that PyTorch's files have.
const TORCH: [&str; 5] = ["pt", "pth", "pt2", "ckpt", "bin"];
const SAFETENSORS: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];
const TORCH_BIN: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Modules of the classes and functions that weights alone need.
const OF_WEIGHTS: [&str; 11] = [
    "torch",
    "torch._utils",
    "torch._tensor",
    "torch.storage",
    "torch.serialization",
    "torch.nn.parameter",
    "collections",
    "builtins",
    "__builtin__",
    "_codecs",
    "numpy",
];

/// The content of a path if it is a model of another library; `None` for anything else, such as an ONNX file.
///
/// # Errors
/// If it cannot be read.
pub fn of(path: &Path) -> io::Result<Option<FrameworkFormat>> {
    if path.is_dir() {
        return Ok(folder(path));
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.map(str::to_lowercase).unwrap_or_default();
    of_file(&name, &mut File::open(path)?)
}

fn folder(path: &Path) -> Option<FrameworkFormat> {
    let has = |name: &str| path.join(name).is_file();
    if has("saved_model.pb") {
        return Some(FrameworkFormat::SavedModel);
    }
    let has_onnx = [path.to_owned(), path.join("onnx")];
    if has_onnx.iter().any(|folder| has_suffix(folder, "onnx")) || !has(CONFIG) {
        return None;
    }
    let (safe, pickled) = (
        SAFETENSORS.iter().any(|name| has(name)),
        TORCH_BIN.iter().any(|name| has(name)),
    );
    let config = std::fs::read(path.join(CONFIG)).unwrap_or_default();
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    let architecture = config["architectures"][0].as_str();
    (safe || pickled).then(|| {
        FrameworkFormat::HuggingFace(HuggingFace {
            architecture: architecture.map(str::to_owned),
            has_pickles: !safe,
            has_code: config["auto_map"].is_object(),
            has_tokenizer: has("tokenizer.json"),
        })
    })
}

fn has_suffix(folder: &Path, suffix: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| path.extension().is_some_and(|it| it == suffix))
}

/// The content of a file with this name, in lower case.
fn of_file(name: &str, file: &mut (impl Read + Seek)) -> io::Result<Option<FrameworkFormat>> {
    let beginning = members::part(file, 0, LEGACY.len() as u64)?;
    let is = |suffixes: &[&str]| {
        name.rsplit_once('.')
            .is_some_and(|(_, suffix)| suffixes.contains(&suffix))
    };
    if zip::is_archive(&beginning)
        && let Some(saved) = archive(file)?
    {
        return Ok(Some(saved));
    }
    if name.ends_with(".weights.h5") {
        return Ok(Some(FrameworkFormat::Weights(Library::Keras)));
    }
    if beginning.starts_with(HDF5) {
        return Ok(Some(FrameworkFormat::Hdf5));
    }
    if beginning == LEGACY {
        return legacy(file).map(Some);
    }
    let by_name = [
        (
            &["safetensors"][..],
            FrameworkFormat::Weights(Library::HuggingFace),
        ),
        (&PICKLES, FrameworkFormat::Pickle),
        (&TORCH, FrameworkFormat::TorchModule),
        (&["keras"], FrameworkFormat::Keras),
        (&["h5", "hdf5"], FrameworkFormat::Hdf5),
    ];
    let found = by_name.into_iter().find(|(suffixes, _)| is(suffixes));
    Ok(found.map(|(_, saved)| saved))
}

/// The content of a zip, by its members.
fn archive(file: &mut (impl Read + Seek)) -> io::Result<Option<FrameworkFormat>> {
    let Some(members) = members::list(file)? else {
        return Ok(None);
    };
    let has = |name: &str| members.iter().any(|member| member.name == name);
    // PyTorch's members are in a folder with the name of the file that was written.
    let within = |name: &str| {
        let is = |path: &str| path.split_once('/').is_some_and(|(_, rest)| rest == name);
        members.iter().find(move |member| is(&member.name))
    };
    if has("config.json") && has("metadata.json") && has("model.weights.h5") {
        return Ok(Some(FrameworkFormat::Keras));
    }
    if within("archive_format").is_some() || has("serialized_exported_program.json") {
        return Ok(Some(FrameworkFormat::ExportedProgram));
    }
    let Some(data) = within("data.pkl") else {
        return Ok(None);
    };
    if within("constants.pkl").is_some() {
        return Ok(Some(FrameworkFormat::TorchScript));
    }
    let pickle = members::read(file, data, MAX_PICKLE_BYTES)?;
    let names = pickle.as_deref().and_then(pickle::names);
    Ok(Some(of_names(names.map(|(names, _)| names))))
}

/// What PyTorch before 1.6 saved.
fn legacy(file: &mut (impl Read + Seek)) -> io::Result<FrameworkFormat> {
    let bytes = members::part(file, 0, MAX_PICKLE_BYTES)?;
    let (mut rest, mut last) = (&bytes[..], None);
    for _ in 0..LEGACY_PICKLES {
        let Some((names, behind)) = pickle::names(rest) else {
            return Ok(FrameworkFormat::TorchModule);
        };
        (rest, last) = (behind, Some(names));
    }
    Ok(of_names(last))
}

/// Weights alone name only tensors and containers of tensors.
fn of_names(names: Option<pickle::Names>) -> FrameworkFormat {
    let is_of_weights = |name: &String| {
        let module = name.split(' ').next().unwrap_or_default();
        let is_numpy = module.starts_with("numpy.");
        is_numpy || OF_WEIGHTS.contains(&module)
    };
    match names {
        Some(names) if names.iter().all(is_of_weights) => {
            FrameworkFormat::Weights(Library::PyTorch)
        }
        _ => FrameworkFormat::TorchModule,
    }
}

#[cfg(test)]
mod tests;
