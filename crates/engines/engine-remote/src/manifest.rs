//! The file that stands for a model of a runtime.
//!
//! It contains names and no instructions: a command, address, path or header cannot be written into
//! it, because a user who may register a model need not be allowed to start programs here.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_engine::Error;

use crate::{metadata::TensorDeclaration, text::shorten};

/// The only format.
pub const FORMAT: &str = "sextant-remote/1";

/// Largest manifest, bytes.
const MAX_BYTES: usize = 64 << 10;

/// Longest name of a model or version, bytes.
const MAX_NAME_BYTES: usize = 256;

/// Largest size that a manifest may claim, bytes: beyond any machine, and sums of it do not
/// overflow.
const MAX_WEIGHTS_BYTES: u64 = 1 << 50;

/// A model of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// A runtime of the server's configuration.
    pub runtime: String,
    /// The model's name there.
    pub model: String,
    /// Its version there; if absent, the runtime chooses.
    #[serde(default)]
    pub version: Option<String>,
    /// Most rows that the runtime accepts at once; any number if absent. 0 says that the first
    /// dimension is not a batch.
    #[serde(default)]
    pub max_batch: Option<u32>,
    /// Memory that the model occupies in the runtime, bytes: the runtime does not report it.
    #[serde(default)]
    pub weights_bytes: u64,
    /// Its inputs, for a runtime that does not describe them, or describes them wrongly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<TensorDeclaration>,
    /// Its outputs; declared with the inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<TensorDeclaration>,
}

/// Reads and checks a manifest.
///
/// # Errors
/// [`Error::Unsupported`] for an ONNX file, [`Error::InvalidModel`] for anything else.
pub fn parse(file: &Bytes) -> Result<Manifest, Error> {
    if file.len() > MAX_BYTES || !sextant_engine::is_manifest(file) {
        return Err(match sextant_onnx::inspect(file) {
            Ok(_) => Error::Unsupported(
                "a runtime has models of its own: register a manifest, not an ONNX file".to_owned(),
            ),
            Err(_) => invalid("it is neither a manifest nor a model"),
        });
    }
    let manifest: Manifest = serde_json::from_slice(file)
        .map_err(|error| invalid(&format!("not a manifest: {error}")))?;
    manifest.check()?;
    Ok(manifest)
}

fn invalid(reason: &str) -> Error {
    Error::InvalidModel(shorten(reason))
}

// === impl Manifest ===

impl Manifest {
    fn check(&self) -> Result<(), Error> {
        if self.format != FORMAT {
            let format = shorten(&self.format);
            return Err(invalid(&format!(
                "the manifest's format is `{format}`, it must be `{FORMAT}`"
            )));
        }
        if self.weights_bytes > MAX_WEIGHTS_BYTES {
            return Err(invalid(&format!(
                "`weights_bytes` of the manifest is more than `{MAX_WEIGHTS_BYTES}`"
            )));
        }
        if self.inputs.is_empty() != self.outputs.is_empty() {
            return Err(invalid(
                "the manifest declares `inputs` or `outputs` alone: declare both, or leave both to the runtime",
            ));
        }
        check_name("model", &self.model)?;
        self.version
            .as_deref()
            .map_or(Ok(()), |version| check_name("version", version))
    }

    /// `/v2/models/{model}`, with the version if there is one. The names need no escapes.
    pub(crate) fn path(&self) -> String {
        let model = &self.model;
        match &self.version {
            Some(version) => format!("/v2/models/{model}/versions/{version}"),
            None => format!("/v2/models/{model}"),
        }
    }

    /// Whether rows of several queries may run together, if the shapes allow it.
    pub(crate) fn allows_batches(&self) -> bool {
        self.max_batch != Some(0)
    }

    /// Most rows of a batch.
    pub(crate) fn most_rows(&self) -> usize {
        match self.max_batch {
            None | Some(0) => usize::MAX,
            Some(rows) => usize::try_from(rows).unwrap_or(usize::MAX),
        }
    }
}

/// Names become parts of a path and must not lead out of it.
fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let dots = name.bytes().all(|byte| byte == b'.');
    if !dots && name.len() <= MAX_NAME_BYTES && name.bytes().all(known) {
        return Ok(());
    }
    let name = shorten(name);
    Err(invalid(&format!(
        "{what} `{name}` of the manifest: use 1 to {MAX_NAME_BYTES} of `A-Z a-z 0-9 - _ .`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifest, Error> {
        parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let text = r#"{"format":"sextant-remote/1","runtime":"triton","model":"resnet-50.v1"}"#;
        let manifest = read(text).unwrap();
        assert_eq!(manifest.path(), "/v2/models/resnet-50.v1");
        assert_eq!(manifest.most_rows(), usize::MAX);
        assert!(manifest.allows_batches());
        assert_eq!((manifest.version, manifest.weights_bytes), (None, 0));
    }

    #[test]
    fn a_version_is_part_of_the_path() {
        let text = r#"{"format":"sextant-remote/1","runtime":"t","model":"m","version":"3"}"#;
        assert_eq!(read(text).unwrap().path(), "/v2/models/m/versions/3");
    }

    #[test]
    fn names_cannot_leave_the_path() {
        let long = "m".repeat(MAX_NAME_BYTES + 1);
        for name in ["", ".", "..", "a/b", "a%2e", "a b", "a?b", "é", &long] {
            let text = format!(r#"{{"format":"{FORMAT}","runtime":"t","model":"{name}"}}"#);
            assert!(matches!(read(&text), Err(Error::InvalidModel(_))), "{name}");
        }
    }

    #[test]
    fn orders_are_refused() {
        for key in ["url", "command", "headers", "environment"] {
            let text = format!(r#"{{"format":"{FORMAT}","runtime":"t","model":"m","{key}":"x"}}"#);
            let Err(Error::InvalidModel(reason)) = read(&text) else {
                panic!("`{key}` is taken");
            };
            assert!(reason.contains(key), "{reason}");
        }
    }

    #[test]
    fn sizes_beyond_any_machine_are_refused() {
        for (bytes, good) in [
            (1u64 << 50, true),
            ((1 << 50) + 1, false),
            (u64::MAX, false),
        ] {
            let text = format!(
                r#"{{"format":"{FORMAT}","runtime":"t","model":"m","weights_bytes":{bytes}}}"#
            );
            assert_eq!(read(&text).is_ok(), good, "{bytes}");
        }
    }

    #[test]
    fn inputs_and_outputs_are_declared_together() {
        let one = r#"[{"name":"x","datatype":"FP32","shape":[-1,2]}]"#;
        let of = |rest: &str| {
            let head = format!(r#""format":"{FORMAT}","runtime":"t","model":"m""#);
            read(&format!("{{{head}{rest}}}"))
        };
        let both = of(&format!(r#","inputs":{one},"outputs":{one}"#)).unwrap();
        assert_eq!(both.inputs[0].shape, [-1, 2]);
        for alone in ["inputs", "outputs"] {
            let refused = of(&format!(r#","{alone}":{one}"#));
            let Err(Error::InvalidModel(reason)) = refused else {
                panic!("`{alone}` alone is taken");
            };
            assert!(reason.contains("declare both"), "{reason}");
        }
    }

    #[test]
    fn other_formats_and_other_files_are_refused() {
        let other = r#"{"format":"sextant-remote/2","runtime":"t","model":"m"}"#;
        for text in [other, "{}", "{", "[1]", "", "GIF89a"] {
            assert!(matches!(read(text), Err(Error::InvalidModel(_))), "{text}");
        }
        let onnx = sextant_onnx::builder::mlp(&[4, 3], 1);
        assert!(matches!(parse(&onnx), Err(Error::Unsupported(_))));
    }
}
