//! Scores a pipeline, or anything else that answers whole records. The sets, metrics and intervals are those of
//! registrations.

use async_trait::async_trait;
use sextant_rpc::examine::{Examination, ExaminationFailure, Examine, Examinee};
use sextant_types::{Accuracy, Signature};

use crate::{
    score::Scorer,
    validation::{self, Limits, ScoringTarget, SetRequirements, ValidationSet},
};

/// Scores answers as a registration does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Examiner;

#[async_trait]
impl Examine for Examiner {
    async fn examine(
        &self,
        examination: Examination<'_>,
        examinee: &mut dyn Examinee,
    ) -> Result<Accuracy, ExaminationFailure> {
        let unfit = |why: &dyn std::fmt::Display| ExaminationFailure::Unfit(why.to_string());
        let signature = by_record(examination.signature)?;
        let scored = scored(&examination, &signature)?;
        let set = read(&examination, &signature, &scored)?;
        let output = &signature.outputs[set.scored()].name;
        let records = set.records();
        let mut scorer = Scorer::new(examination.metric, set.labels(), output);
        for (done, part) in set.parts(1).enumerate() {
            if part.begins {
                scorer.turn_to(part.labels);
            }
            let record = set.rows(part.start, 1).map_err(|error| unfit(&error))?;
            let answered = examinee.answer(record, output, (done, records)).await;
            let answered = answered.map_err(|reason| ExaminationFailure::Unanswered {
                record: done + 1,
                reason,
            })?;
            scorer.push(&answered, 1).map_err(|error| unfit(&error))?;
        }
        Ok(scorer.finish(1))
    }
}

fn scored(
    examination: &Examination<'_>,
    signature: &Signature,
) -> Result<ScoringTarget, ExaminationFailure> {
    let Some(name) = examination.output else {
        return Ok(ScoringTarget::by(examination.metric, signature));
    };
    let found = signature.outputs.iter().position(|it| it.name == name);
    let missing = || ExaminationFailure::Unfit(format!("there is no output `{name}`"));
    Ok(ScoringTarget {
        output: found.ok_or_else(missing)?,
        ..ScoringTarget::default()
    })
}

fn read(
    examination: &Examination<'_>,
    signature: &Signature,
    scored: &ScoringTarget,
) -> Result<ValidationSet, ExaminationFailure> {
    let expected = SetRequirements {
        signature,
        metric: examination.metric,
        scored,
        limits: Limits::default(),
    };
    let set = validation::read(examination.set, expected);
    let set = set.map_err(|error| ExaminationFailure::Unfit(error.to_string()))?;
    match set.is_labelled() {
        true => Ok(set),
        false => Err(ExaminationFailure::Unfit(
            "it has no labels, and nothing else says what is right".to_owned(),
        )),
    }
}

/// The signature with the first dimension of each tensor as that of the records.
fn by_record(signature: &Signature) -> Result<Signature, ExaminationFailure> {
    let mut signature = Signature {
        batched: true,
        ..signature.clone()
    };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err(ExaminationFailure::Unfit(
            "there are no inputs or no outputs".to_owned(),
        ));
    }
    let specs = signature.inputs.iter_mut().chain(&mut signature.outputs);
    for spec in specs {
        match spec.shape.first_mut() {
            Some(first @ (None | Some(1))) => *first = None,
            _ => {
                return Err(ExaminationFailure::Unfit(format!(
                    "`{}` has no dimension of records in front",
                    spec.name
                )));
            }
        }
    }
    Ok(signature)
}
