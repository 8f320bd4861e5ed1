//! Parses names that the service gives to files.

use sextant_objects::ObjectPath;
use sextant_types::{JobId, offline};

/// The purpose of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilePurpose {
    /// A job that keeps its parts in this folder.
    Parts {
        /// The job.
        job: JobId,
        /// `{output}.parts`.
        folder: String,
    },
    /// The webhook of a job.
    Notes(JobId),
}

/// The purpose of a file, if it has a name that the service gives to files of jobs.
pub(crate) fn kept_for(path: &ObjectPath) -> Option<FilePurpose> {
    let (folder, name) = path.as_str().rsplit_once('/')?;
    let (parent, job) = folder.rsplit_once('/')?;
    let job = JobId::new(job).ok()?;
    if offline::notes_folder(&job) == folder {
        return (name == offline::WEBHOOK_NOTE).then_some(FilePurpose::Notes(job));
    }
    (offline::is_parts_folder(parent) && is_part(name)).then(|| FilePurpose::Parts {
        job,
        folder: parent.to_owned(),
    })
}

/// `00000001-1.part`, `claim-1.json`, `plan-1.json`.
fn is_part(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let document = |kind: &str| name.strip_prefix(kind)?.strip_suffix(".json");
    if let Some(number) = document("claim-").or_else(|| document("plan-")) {
        return is_number(number);
    }
    let chunk = name.strip_suffix(".part").and_then(|it| it.split_once('-'));
    chunk.is_some_and(|(chunk, claim)| chunk.len() >= 8 && is_number(chunk) && is_number(claim))
}

/// Whether the service gave the job its id: 8-4-4-4-12 hexadecimal digits.
pub(crate) fn is_given(job: &JobId) -> bool {
    let groups = job.as_str().split('-').map(|group| {
        let is_hex = group.bytes().all(|it| it.is_ascii_hexdigit());
        is_hex.then_some(group.len())
    });
    groups.eq([8, 4, 4, 4, 12].map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "0190b6f0-7c00-7000-8000-000000000001";

    fn kept(path: &str) -> Option<FilePurpose> {
        kept_for(&ObjectPath::parse(path).expect("a path"))
    }

    fn job() -> JobId {
        JobId::new(JOB).expect("a name")
    }

    #[test]
    fn what_jobs_keep_is_known_by_its_name() {
        for name in [
            "00000000-1.part",
            "123456789-12.part",
            "claim-3.json",
            "plan-1.json",
        ] {
            let found = kept(&format!("a/out.jsonl.parts/{JOB}/{name}"));
            let folder = "a/out.jsonl.parts".to_owned();
            assert_eq!(
                found,
                Some(FilePurpose::Parts { job: job(), folder }),
                "{name}"
            );
        }
        let note = kept(&format!(".jobs/{JOB}/webhook.json"));
        assert_eq!(note, Some(FilePurpose::Notes(job())));
    }

    #[test]
    fn what_users_call_their_files_is_not() {
        for path in [
            format!("out.parts/{JOB}"),
            format!("out.parts/{JOB}/readme.txt"),
            format!("out.parts/{JOB}/plan-one.json"),
            format!("out.parts/{JOB}/0-1.part"),
            format!("out.parts/{JOB}/deeper/claim-1.json"),
            format!("out/{JOB}/claim-1.json"),
            format!(".parts/{JOB}/claim-1.json"),
            format!(".jobs/{JOB}/mine.json"),
            "plan-1.json".to_owned(),
        ] {
            assert_eq!(kept(&path), None, "{path}");
        }
    }

    #[test]
    fn a_name_that_the_service_gave_is_told_from_others() {
        assert!(is_given(&job()));
        for name in [
            "nightly",
            "0190b6f0-7c00-7000-8000",
            "0190b6f0-7c00-7000-8000-00000000000g",
        ] {
            assert!(!is_given(&JobId::new(name).expect("a name")), "{name}");
        }
    }
}
