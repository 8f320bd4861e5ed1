//! The decisions that were made when the job first ran.

use std::{collections::BTreeSet, ops::Range};

use serde::{Deserialize, Serialize};
use sextant_objects::{ObjectInfo, ObjectPath};
use sextant_records::{Files, Outline, check_output};
use sextant_types::{Code, OfflineSpec, Signature, VariantId, offline::RecordFormat};

use super::stop::Stop;

/// The most files below one input.
const MOST_FILES: usize = 100_000;

/// The variant that answers all records, and the files in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) variant: VariantId,
    pub(crate) sources: Vec<Source>,
}

/// A file of records, or consecutive files that are one record each. A chunk never spans two sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) path: String,
    /// Records per chunk, at least 1.
    pub(crate) chunk: u32,
    pub(crate) outline: Outline,
}

/// A plan with running totals: where each chunk lies, and which file gets it.
pub(crate) struct Layout {
    pub(crate) plan: Plan,
    /// Records in all.
    pub(crate) records: u64,
    /// Chunks in all.
    pub(crate) chunks: u64,
    /// For each source, the records and chunks before it.
    before: Vec<(u64, u64)>,
    pub(crate) targets: Vec<Target>,
}

/// A file of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: ObjectPath,
    pub(crate) format: RecordFormat,
    pub(crate) chunks: Range<u64>,
    /// Records before its first record.
    pub(crate) first_record: u64,
}

/// Where a chunk's records lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The position of the source.
    pub(crate) source: usize,
    /// Its first record within the source.
    pub(crate) first_in_source: u64,
    /// Its first record in the job.
    pub(crate) first: u64,
    /// Records in it.
    pub(crate) records: u32,
}

impl Place {
    /// Takes this many records from the start, or all if there are fewer.
    pub(crate) fn take(&mut self, records: u32) -> Self {
        let taken = Self {
            records: records.min(self.records),
            ..*self
        };
        self.first += u64::from(taken.records);
        self.first_in_source += u64::from(taken.records);
        self.records -= taken.records;
        taken
    }
}

impl Plan {
    /// Finds the input files and scans them.
    pub(crate) async fn scan(
        files: &Files,
        spec: &OfflineSpec,
        variant: VariantId,
        signature: &Signature,
    ) -> Result<Self, Stop> {
        let format = output_format(spec);
        check_output(format, signature)?;
        // Answers to files that are one record each share a file, unless the output is a folder.
        let together = match spec.output.ends_with('/') {
            true => 1,
            false => MOST_FILES,
        };
        let (mut sources, mut whole) = (Vec::new(), Vec::new());
        for info in inputs(files, &spec.input).await? {
            let format = input_format(spec, info.path.as_str())?;
            let is_whole = format == RecordFormat::File;
            if !is_whole || whole.len() == together {
                sources.extend(Source::whole(&mut whole, (spec, signature))?);
            }
            if is_whole {
                whole.push(info);
                continue;
            }
            let outline = Outline::scan(files, &info.path, format, signature).await?;
            sources.push(Source::new(info.path.to_string(), outline, spec));
        }
        sources.extend(Source::whole(&mut whole, (spec, signature))?);
        Ok(Self { variant, sources })
    }
}

/// The files of an input: the input itself, or all files below it.
async fn inputs(files: &Files, input: &str) -> Result<Vec<ObjectInfo>, Stop> {
    if !input.ends_with('/') {
        let found = files.stat(&ObjectPath::parse(input)?).await?;
        let object = input.to_owned();
        let found = found.ok_or(sextant_objects::Error::NotFound { object })?;
        return Ok(vec![found]);
    }
    let found = files.list(input, MOST_FILES).await?;
    match found.len() {
        0 => {
            let message = format!("there is no artefact below `{input}`");
            Err(Stop::failed(Code::ArtefactNotFound, message))
        }
        count if count > MOST_FILES => {
            let message = format!("below `{input}` are over {MOST_FILES} files: join some of them");
            Err(Stop::failed(Code::TooLarge, message))
        }
        _ => Ok(found),
    }
}

fn input_format(spec: &OfflineSpec, path: &str) -> Result<RecordFormat, Stop> {
    let known = spec.input_format.or_else(|| RecordFormat::of_path(path));
    if let Some(format) = known {
        return Ok(format);
    }
    // A single file without a suffix is taken for lines. In a folder such a file may be anything.
    let found = match spec.input.ends_with('/') {
        false => RecordFormat::of_input(path),
        true => Err(format!(
            "`{path}` has no known suffix: say `format`, or move it away"
        )),
    };
    found.map_err(|message| Stop::failed(Code::InvalidRequest, message))
}

fn output_format(spec: &OfflineSpec) -> RecordFormat {
    let by_suffix = || RecordFormat::of_path(&spec.output).filter(|of| of.is_written());
    spec.output_format
        .or_else(by_suffix)
        .unwrap_or(RecordFormat::Jsonl)
}

// === impl Source ===

impl Source {
    fn new(path: String, outline: Outline, spec: &OfflineSpec) -> Self {
        Self {
            path,
            chunk: outline.chunk(spec.chunk),
            outline,
        }
    }

    /// The source of consecutive files that are one record each, if there are any. It empties the list.
    fn whole(
        files: &mut Vec<ObjectInfo>,
        (spec, signature): (&OfflineSpec, &Signature),
    ) -> Result<Option<Self>, Stop> {
        let files = std::mem::take(files);
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let path = first.path.to_string();
        let outline = Outline::of_files(files, signature)?;
        Ok(Some(Self::new(path, outline, spec)))
    }

    fn chunks(&self) -> u64 {
        self.outline.records.div_ceil(u64::from(self.chunk.max(1)))
    }
}

// === impl Layout ===

impl Layout {
    /// Computes the totals of a plan. Refuses two files of answers with the same name.
    pub(crate) fn new(spec: &OfflineSpec, plan: Plan) -> Result<Self, Stop> {
        let (mut records, mut chunks) = (0, 0);
        let mut before = Vec::with_capacity(plan.sources.len());
        for source in &plan.sources {
            before.push((records, chunks));
            records += source.outline.records;
            chunks += source.chunks();
        }
        let mut layout = Self {
            plan,
            records,
            chunks,
            before,
            targets: Vec::new(),
        };
        layout.targets = layout.find_targets(spec)?;
        Ok(layout)
    }

    fn find_targets(&self, spec: &OfflineSpec) -> Result<Vec<Target>, Stop> {
        let format = output_format(spec);
        if !spec.output.ends_with('/') {
            return Ok(vec![Target {
                path: ObjectPath::parse(&spec.output)?,
                format,
                chunks: 0..self.chunks,
                first_record: 0,
            }]);
        }
        let mut names = BTreeSet::new();
        let mut targets = Vec::with_capacity(self.before.len());
        for (source, (records, chunks)) in self.plan.sources.iter().zip(&self.before) {
            let name = source.path.strip_prefix(&spec.input);
            let name = name.unwrap_or(&source.path);
            let path = match RecordFormat::of_path(name) == Some(format) {
                true => format!("{}{name}", spec.output),
                false => format!("{}{name}.{format}", spec.output),
            };
            if !names.insert(path.clone()) {
                let message = format!(
                    "two files of `{}` would be answered in `{path}`",
                    spec.input
                );
                return Err(Stop::failed(Code::InvalidRequest, message));
            }
            targets.push(Target {
                path: ObjectPath::parse(&path)?,
                format,
                chunks: *chunks..chunks + source.chunks(),
                first_record: *records,
            });
        }
        Ok(targets)
    }

    /// The chunk that begins after `committed` records.
    pub(crate) fn chunk_at(&self, committed: u64) -> u64 {
        if committed >= self.records {
            return self.chunks;
        }
        let source = last(&self.before, |(records, _)| *records <= committed);
        let (records, chunks) = self.before[source];
        chunks + (committed - records) / u64::from(self.plan.sources[source].chunk)
    }

    /// Where a chunk's records lie.
    pub(crate) fn place(&self, chunk: u64) -> Place {
        let source = last(&self.before, |(_, chunks)| *chunks <= chunk);
        let (records, chunks) = self.before[source];
        let Source {
            chunk: size,
            outline,
            ..
        } = &self.plan.sources[source];
        let first_in_source = (chunk - chunks) * u64::from(*size);
        let left = outline.records - first_in_source;
        Place {
            source,
            first_in_source,
            first: records + first_in_source,
            records: u32::try_from(left).map_or(*size, |left| left.min(*size)),
        }
    }

    /// The file of answers that a chunk goes into.
    pub(crate) fn target(&self, chunk: u64) -> &Target {
        &self.targets[last(&self.targets, |target| target.chunks.start <= chunk)]
    }
}

/// The position of the last element of a sorted list for which `holds`. It must hold for the first.
fn last<T>(list: &[T], holds: impl Fn(&T) -> bool) -> usize {
    list.partition_point(holds).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sextant_types::{ApplicationId, Route, Targets};

    fn layout(sizes: &[(&str, u64)], output: &str) -> Result<Layout, Stop> {
        let spec = OfflineSpec {
            route: Route::Application(ApplicationId::new("a").expect("a name")),
            targets: Targets::default(),
            input: "in/".to_owned(),
            output: output.to_owned(),
            chunk: 4,
            input_format: None,
            output_format: None,
            webhook: None,
        };
        let source = |(name, records): &(&str, u64)| Source {
            path: format!("in/{name}"),
            chunk: 4,
            outline: Outline {
                format: RecordFormat::Jsonl,
                size_bytes: 0,
                modified_ms: 0,
                records: *records,
                record_bytes: 0,
                marks: Vec::new(),
                files: Vec::new(),
            },
        };
        let variant = VariantId::new("v").expect("a name");
        let sources = sizes.iter().map(source).collect();
        Layout::new(&spec, Plan { variant, sources })
    }

    #[test]
    fn chunks_cover_every_record_once_in_order() {
        let sizes = [("a", 0), ("b", 9), ("c", 0), ("d", 4), ("e", 1), ("f", 0)];
        for output in ["out.jsonl", "out/"] {
            let layout = layout(&sizes, output).expect("a layout");
            let mut next = 0;
            for chunk in 0..layout.chunks {
                assert_eq!(layout.chunk_at(next), chunk);
                let place = layout.place(chunk);
                assert_eq!(place.first, next);
                let target = layout.target(chunk);
                assert!(target.chunks.contains(&chunk));
                if output == "out/" {
                    assert_eq!(next - target.first_record, place.first_in_source);
                }
                next += u64::from(place.records);
            }
            assert_eq!(next, layout.records);
            assert_eq!(layout.chunk_at(next), layout.chunks);
        }
    }

    #[test]
    fn every_file_is_answered_in_its_own() {
        let layout = layout(&[("a.npy", 1), ("b/c.jsonl", 1)], "out/").expect("a layout");
        let paths: Vec<&str> = layout.targets.iter().map(|t| t.path.as_str()).collect();
        assert_eq!(paths, ["out/a.npy.jsonl", "out/b/c.jsonl"]);
        let same = self::layout(&[("a.npy", 1), ("a.npy.jsonl", 1)], "out/");
        assert!(matches!(same, Err(Stop::Failed { code, .. }) if code == Code::InvalidRequest));
    }
}
