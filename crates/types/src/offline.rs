//! The specification of an offline job and the progress that it reports. They are stored with the job, written by
//! `api`, and read by the dispatcher's job runner.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{JobId, Route, Targets, VariantId};

/// Records in the artefact store, and the files into which they are answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfflineSpec {
    /// The route that answers the records.
    pub route: Route,
    /// Accuracy and cost targets. Latency is ignored, because the job runs on spare resources.
    pub targets: Targets,
    /// Path of the records. A path that ends in `/` means all files below it, in the order of their names.
    pub input: String,
    /// Path of the answers, in the order of the records. A path that ends in `/` has one file for each input file.
    pub output: String,
    /// Records that are answered and committed together, at least 1.
    pub chunk: u32,
    /// The format of the input; `None` uses each file's suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_format: Option<RecordFormat>,
    /// The format of the output; `None` uses its suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_format: Option<RecordFormat>,
    /// The webhook that is told when the job has ended: an `http` or `https` address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

/// The format of files of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// One JSON document per line.
    Jsonl,
    /// One NumPy array whose first dimension counts the records.
    Npy,
    /// An archive of such arrays, one for each name.
    Npz,
    /// Rows of text, the first of which names the columns.
    Csv,
    /// Rows in groups of compressed columns.
    Parquet,
    /// A file that is one record as a whole, such as a picture or a text. It is only read.
    File,
}

impl RecordFormat {
    /// Every format that can be written.
    pub const WRITTEN: [Self; 5] = [Self::Jsonl, Self::Npy, Self::Npz, Self::Csv, Self::Parquet];

    /// Every format that can be read.
    pub const ALL: [Self; 6] = [
        Self::Jsonl,
        Self::Npy,
        Self::Npz,
        Self::Csv,
        Self::Parquet,
        Self::File,
    ];

    /// `jsonl`, `npy`, `npz`, `csv`, `parquet`, `file`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::File => "file",
        }
    }

    /// The suffixes of its files.
    pub fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Jsonl => &["jsonl", "ndjson"],
            Self::Npy => &["npy"],
            Self::Npz => &["npz"],
            Self::Csv => &["csv"],
            Self::Parquet => &["parquet"],
            Self::File => &["jpeg", "jpg", "png", "txt", "webp"],
        }
    }

    /// Whether answers can be written in it.
    pub fn is_written(self) -> bool {
        Self::WRITTEN.contains(&self)
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The format of an input for which no format is given: by its suffix, or lines if it has none.
    ///
    /// # Errors
    /// A sentence about a suffix that belongs to no format.
    pub fn of_input(path: &str) -> Result<Self, String> {
        Self::of_file(path, &Self::ALL)
    }

    /// The same for an output.
    ///
    /// # Errors
    /// A sentence about a suffix that belongs to no format that can be written.
    pub fn of_output(path: &str) -> Result<Self, String> {
        Self::of_file(path, &Self::WRITTEN)
    }

    fn of_file(path: &str, formats: &[Self]) -> Result<Self, String> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some((_, suffix)) = name.rsplit_once('.') else {
            return Ok(Self::Jsonl);
        };
        let of = Self::of_path(path).filter(|of| formats.contains(of));
        of.ok_or_else(|| {
            let names = formats.iter().flat_map(|of| of.suffixes());
            let names = names.copied().collect::<Vec<_>>().join("`, `");
            format!("`{name}` ends in `.{suffix}`: it may be one of `{names}`")
        })
    }

    /// The format that a path's suffix stands for.
    pub fn of_path(path: &str) -> Option<Self> {
        let (_, suffix) = path.rsplit_once('.')?;
        let suffix = suffix.to_ascii_lowercase();
        let mut all = Self::ALL.into_iter();
        all.find(|of| of.suffixes().contains(&suffix.as_str()))
    }
}

impl fmt::Display for RecordFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The activity of a running job: the `step` of its row. Its text is for people; programs parse it back for the
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineStep {
    /// Chunks that are committed.
    pub chunk: u64,
    /// Chunks in all.
    pub chunks: u64,
    /// The variant that answers.
    pub variant: VariantId,
    /// Records that could not be answered so far.
    pub failed: u64,
    /// Estimated time until the job ends, seconds; `None` before the first chunk of a run.
    pub left_s: Option<u64>,
}

impl fmt::Display for OfflineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            chunk,
            chunks,
            variant,
            failed,
            left_s,
        } = self;
        write!(
            f,
            "chunk {chunk} of {chunks} by {variant}, {failed} records failed"
        )?;
        match left_s {
            Some(left_s) => write!(f, ", about {left_s} s left"),
            None => Ok(()),
        }
    }
}

impl FromStr for OfflineStep {
    type Err = UnknownStep;

    fn from_str(text: &str) -> Result<Self, UnknownStep> {
        read_step(text).ok_or(UnknownStep)
    }
}

/// A text that is not the step of an offline job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the step of an offline job")]
pub struct UnknownStep;

fn read_step(text: &str) -> Option<OfflineStep> {
    let (chunk, rest) = text.strip_prefix("chunk ")?.split_once(" of ")?;
    let (chunks, rest) = rest.split_once(" by ")?;
    let (variant, rest) = rest.split_once(", ")?;
    let (failed, rest) = rest.split_once(" records failed")?;
    let left_s = match rest {
        "" => None,
        rest => {
            let left = rest.strip_prefix(", about ")?.strip_suffix(" s left")?;
            Some(left.parse().ok()?)
        }
    };
    Some(OfflineStep {
        chunk: chunk.parse().ok()?,
        chunks: chunks.parse().ok()?,
        variant: VariantId::new(variant).ok()?,
        failed: failed.parse().ok()?,
        left_s,
    })
}

/// The suffix of the file with the lines about records without an answer. It is appended to an output's name.
pub const ERRORS_SUFFIX: &str = ".errors.jsonl";

/// The file in a job's [`notes_folder`] that records the delivery to its webhook.
pub const WEBHOOK_NOTE: &str = "webhook.json";

/// The suffix of the folder of the parts. It is appended to an output's name.
const PARTS_SUFFIX: &str = ".parts";

/// `{output}.parts`, below which jobs with this output keep their parts, each in a folder named after the job.
pub fn parts_folder(output: &str) -> String {
    format!("{}{PARTS_SUFFIX}", output.trim_end_matches('/'))
}

/// Whether a folder of this name holds the parts of jobs with some output.
pub fn is_parts_folder(folder: &str) -> bool {
    let output = folder.strip_suffix(PARTS_SUFFIX);
    output.is_some_and(|output| !output.is_empty() && !output.ends_with('/'))
}

/// The folder in which the messages about a job are recorded.
pub fn notes_folder(job: &JobId) -> String {
    format!(".jobs/{job}")
}

/// The longest accepted address of a webhook, bytes.
const MAX_WEBHOOK_BYTES: usize = 2048;

/// Refuses addresses that cannot be a webhook's, and addresses with names and passwords, which would be shown wherever
/// the job is. The reason never quotes the address.
pub fn check_webhook(url: &str) -> Result<(), &'static str> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .ok_or("a webhook begins with `http://` or `https://`")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if url.len() > MAX_WEBHOOK_BYTES {
        return Err("a webhook has at most 2048 bytes");
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('\\') {
        return Err("a webhook has only visible ASCII: escape the rest as `%..`");
    }
    if host.contains('@') {
        return Err("a webhook carries no user or password: the signature proves who sends");
    }
    if host.is_empty() || host.starts_with(':') {
        return Err("a webhook needs a host");
    }
    Ok(())
}

/// Scheme and host of a webhook. Only these may be shown, because its path may be a secret.
pub fn shown_webhook(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_back_as_it_was_written() {
        for left_s in [None, Some(0), Some(7200)] {
            let step = OfflineStep {
                chunk: 3,
                chunks: 40,
                variant: VariantId::new("mlp-ort-fp32-all-t1-b8").expect("a name"),
                failed: 2,
                left_s,
            };
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        for other in [
            "",
            "inspect",
            "chunk 1 of 2",
            "chunk x of 2 by v, 0 records failed",
        ] {
            assert_eq!(other.parse::<OfflineStep>(), Err(UnknownStep), "{other}");
        }
    }

    #[test]
    fn formats_go_by_the_suffix() {
        let of = RecordFormat::of_path;
        assert_eq!(of("a/b.jsonl"), Some(RecordFormat::Jsonl));
        assert_eq!(of("a.NPY"), Some(RecordFormat::Npy));
        assert_eq!(of("a.b/c.npz"), Some(RecordFormat::Npz));
        assert_eq!(of("a.npy/c"), None);
        assert_eq!(of("records"), None);
        assert_eq!(of("photos/a.JPG"), Some(RecordFormat::File));
        assert_eq!(of("a.file"), None);
        let of_file = RecordFormat::of_input;
        assert_eq!(of_file("2026.07/records"), Ok(RecordFormat::Jsonl));
        assert_eq!(of_file("a/b.ndjson"), Ok(RecordFormat::Jsonl));
        assert_eq!(of_file("a/b.png"), Ok(RecordFormat::File));
        assert!(RecordFormat::of_output("a/b.png").is_err_and(|why| !why.contains("webp")));
        for (path, suffix) in [
            ("in/wine.xlsx", ".xlsx"),
            ("x.parquet.gz", ".gz"),
            ("y.json", ".json"),
        ] {
            let refused = of_file(path).expect_err("no format has it");
            assert!(
                refused.contains(&format!("ends in `{suffix}`")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_webhook_is_an_address_without_a_password() {
        for fine in [
            "http://127.0.0.1:80/x?y=1",
            "https://host",
            "http://[::1]:8/",
        ] {
            assert_eq!(check_webhook(fine), Ok(()), "{fine}");
        }
        for bad in [
            "ftp://host/",
            "http:///path",
            "http://:80/",
            "https://me:secret@host/",
            "https://host/a b",
            "https://ho\\st/",
            "https://hôte/",
            "",
        ] {
            assert!(check_webhook(bad).is_err(), "{bad}");
        }
        let shown = shown_webhook("https://me:secret@host:1/token?key=2");
        assert_eq!(shown, "https://host:1/..");
    }

    #[test]
    fn a_specification_of_an_earlier_version_is_read() {
        let old = serde_json::json!({
            "route": {"application": "a"}, "targets": Targets::default(),
            "input": "in.jsonl", "output": "out.jsonl", "chunk": 4
        });
        let route = serde_json::to_value(Route::Application(
            crate::ApplicationId::new("a").expect("a name"),
        ));
        let mut old = old;
        old["route"] = route.expect("a route is JSON");
        let spec: OfflineSpec = serde_json::from_value(old.clone()).expect("it is read");
        assert_eq!(spec.input_format, None);
        assert_eq!(serde_json::to_value(spec).expect("it is written"), old);
    }
}
