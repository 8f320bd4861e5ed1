//! What a file shows without being run.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_engine::ModelFile;
use sextant_onnx::{
    Error, ModelInfo,
    adapt::{self, Plain},
    fit, inspect,
    rows::{self, CountedOutput},
    turn::turn,
};
use sextant_types::{Metric, Signature};

use super::{Rewrite, RewriteOutput, Rewriting};
use crate::validation::ScoringTarget;

/// Message if a model is declared without a batch dimension and takes batches all the same.
const WIDENED: &str = "its inputs or outputs are declared without a batch dimension; batches of 1, 2 and 3 \
                       records are answered as the records are one by one, so it is served in batches";

/// Message if the batch dimension is not the first.
const TURNED: &str = "its batch dimension is not the first one of each input and output; they are transposed, and batches \
                      of 1, 2 and 3 records are answered as the records are one by one";

/// Message if the models of the application take no batches.
const AS_THE_APPLICATION: &str =
    "the application's models take one record at a time, and so does this one";

/// Message if other outputs may be divided among records.
pub(crate) const OTHERS: &str =
    "; without them, by `--output` with the names of the others, there can be batches";

/// Message if values, but not dimensions, depend on the other records of a batch.
const MIXED: &str = "so queries share no batches, and each is answered in a run of its own";

/// What [`Look`] needs. The file has the names of its application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LookOptions {
    /// The result of the steps before; the file itself comes separately.
    pub(crate) plain: Plain,
    pub(crate) vocabulary: Vocabulary,
    /// Whether the file takes batches and the application's models do not.
    pub(crate) is_lone: bool,
    /// Whether the file may be widened: not if the application's models take one record at a time.
    pub(crate) may_widen: bool,
}

/// The known names of classes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Vocabulary {
    /// The metric; `None` if the owner has named the output.
    pub(crate) metric: Option<Metric>,
    /// The names that the model's owner gave.
    pub(crate) stated: Vec<String>,
    /// The names in the application's models.
    pub(crate) known: Vec<String>,
    /// The signature of the application's models.
    pub(crate) application: Option<Signature>,
}

/// What a file shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Look {
    pub(crate) plain: Plain,
    pub(crate) info: ModelInfo,
    /// The model's own names of the scored output's classes, if its application uses others.
    pub(crate) own_classes: Vec<String>,
    /// The file with a batch dimension, if it is declared without one and may have one.
    pub(crate) wide: Option<WidenedFile>,
    /// The operator that computes a value from all rows of a batch, in words.
    pub(crate) mixes: Option<String>,
    /// Why a query is one record, if the file declares otherwise.
    pub(crate) alone: Option<String>,
}

/// A file that was given a batch dimension.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WidenedFile {
    pub(crate) info: ModelInfo,
    /// The file. It is left out of the JSON.
    #[serde(skip)]
    pub(crate) model: Bytes,
    /// The message about it.
    pub(crate) how: String,
}

impl Rewrite for LookOptions {
    type Found = Look;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<Look>, Error> {
        let mut plain = self.plain.clone();
        plain.model = file.graph.clone();
        let (plain, own_classes) = self.vocabulary.fit(plain)?;
        let look = Look::at(plain, self.is_lone, self.may_widen)?;
        let look = Look {
            own_classes,
            ..look
        };
        let wide = look.wide.iter().map(|it| it.model.clone());
        let files = [look.plain.model.clone()].into_iter().chain(wide).collect();
        Ok(RewriteOutput { found: look, files })
    }

    fn told(self) -> Rewriting {
        Rewriting::Look(Box::new(self))
    }
}

// === impl Vocabulary ===

impl Vocabulary {
    /// Puts the columns of the scored output into the application's order, and gives labels its type.
    fn fit(&self, mut plain: Plain) -> Result<(Plain, Vec<String>), Error> {
        let signature = inspect(&plain.model)?.signature;
        let scored = match self.metric {
            Some(metric) => ScoringTarget::by(metric, &signature),
            None => ScoringTarget::default(),
        };
        let Some(output) = signature.outputs.get(scored.output) else {
            return Ok((plain, Vec::new()));
        };
        if let Some(application) = &self.application {
            fit::relax(&mut plain, application)?;
        }
        let vocabulary = fit::Vocabulary {
            output: &output.name,
            stated: &self.stated,
            known: &self.known,
            application: self.application.as_ref(),
        };
        fit::classes(plain, vocabulary)
    }
}

// === impl Look ===

impl Look {
    /// Takes the files that came with it.
    pub(crate) fn with_files(mut self, files: Vec<Bytes>) -> Self {
        let mut files = files.into_iter();
        self.plain.model = files.next().unwrap_or_default();
        if let (Some(wide), Some(model)) = (&mut self.wide, files.next()) {
            wide.model = model;
        }
        self
    }

    fn at(mut plain: Plain, is_lone: bool, may_widen: bool) -> Result<Self, Error> {
        let mixes = rows::mixes_rows(&plain.model)?;
        plain
            .changes
            .extend(mixes.as_ref().map(|mixes| format!("{mixes}, {MIXED}")));
        let look = Self {
            info: inspect(&plain.model)?,
            plain,
            own_classes: Vec::new(),
            wide: None,
            mixes,
            alone: None,
        };
        match rows::counted_output(&look.plain.model)? {
            _ if is_lone => look.alone(AS_THE_APPLICATION.to_owned()),
            Some(counted) => {
                let said = look.said_of(&counted);
                look.alone(said)
            }
            None if !may_widen => Ok(look),
            None => look.widened(),
        }
    }

    /// The same with an undeclared batch dimension that may exist.
    fn widened(mut self) -> Result<Self, Error> {
        let Self { plain, info, .. } = &self;
        let wide = match info.signature.batched {
            true => None,
            false => match turn(&plain.model)? {
                Some(turned) => Some((turned, TURNED)),
                None => adapt::widen(&plain.model)?.map(|wide| (wide, WIDENED)),
            },
        };
        let wide = wide.map(|(model, how)| {
            Ok::<_, Error>(WidenedFile {
                info: inspect(&model)?,
                model,
                how: how.to_owned(),
            })
        });
        self.wide = wide.transpose()?;
        Ok(self)
    }

    /// The message about a first dimension that counts something else, with the file's own names.
    fn said_of(&self, counted: &CountedOutput) -> String {
        let CountedOutput {
            output,
            counts,
            batch,
        } = counted;
        let batch = match batch {
            Some(batch) => format!("that of the inputs `{batch}`"),
            None => "the inputs have one record".to_owned(),
        };
        let others = match self.info.signature.outputs.len() {
            1 => "",
            _ => OTHERS,
        };
        format!(
            "the first dimension of output `{output}` is named `{counts}` and {batch}, so a query is one record{others}"
        )
    }

    /// The same for a model that takes one record at a time: the file is changed to say so.
    fn alone(self, said: String) -> Result<Self, Error> {
        let model = adapt::lone(&self.plain.model)?;
        let info = inspect(&model)?;
        Ok(self.without_batches((info, model), said))
    }

    /// The same with the file that takes no batches, and why.
    pub(crate) fn without_batches(self, (info, model): (ModelInfo, Bytes), said: String) -> Self {
        let mut plain = self.plain;
        plain.model = model;
        plain.changes.push(said.clone());
        Self {
            info,
            plain,
            wide: None,
            alone: Some(said),
            ..self
        }
    }
}
