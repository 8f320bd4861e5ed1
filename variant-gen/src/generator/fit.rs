//! Fits a model to the other models of its application: the same names, dimensions, classes and types of labels.

use bytes::Bytes;
use sextant_types::Signature;

use super::{Registration, rewrite::only, sets::WrappedSet};
use crate::{
    Error,
    rewriting::{Fit, FitResult, Look, LookOptions, Vocabulary},
};

impl Registration<'_> {
    /// The servable file with the stated names and those of its application, and the validation set if it uses other
    /// names for inputs. `changed` says in words what was changed in the file before.
    pub(super) async fn fit(
        &mut self,
        graph: &Bytes,
        changed: Option<&str>,
        application: Option<Signature>,
    ) -> Result<(FitResult, Option<WrappedSet>), Error> {
        let bits = |numbers: &Vec<f64>| numbers.iter().map(|it| it.to_bits()).collect();
        let constants = self.model.constants.iter();
        let fit = Fit {
            outputs: self.model.outputs.clone(),
            constants: constants
                .map(|(name, numbers)| (name.clone(), bits(numbers)))
                .collect(),
            changed: changed.map(str::to_owned),
            stated: self.model.names.clone(),
            application,
        };
        let (mut fitted, model) = only(self.rewrite(graph, fit).await?);
        fitted.plain.model = model;
        if fitted.inputs.is_empty() {
            return Ok((fitted, None));
        }
        let names = fitted.inputs.clone();
        let set = self.wrap(|front| front.named(names), None).await?;
        Ok((fitted, Some(set)))
    }

    /// Puts the columns of the scored output into the application's order, gives labels its type, and finds what can be
    /// seen of batches.
    pub(super) async fn look(
        &mut self,
        fitted: FitResult,
        application: Option<Signature>,
    ) -> Result<Look, Error> {
        let known = match application {
            Some(_) => self.parts.registry.classes_before(&self.model).await?,
            None => Vec::new(),
        };
        let FitResult { plain, is_lone, .. } = fitted;
        let graph = plain.model.clone();
        let looking = LookOptions {
            plain,
            is_lone,
            may_widen: application.as_ref().is_none_or(|it| it.batched),
            vocabulary: Vocabulary {
                metric: (self.model.outputs.is_empty()).then_some(self.application.metric),
                stated: self.model.classes.clone(),
                known,
                application,
            },
        };
        let made = self.rewrite(&graph, looking).await?;
        let look = made.found.with_files(made.files);
        self.own_classes.clone_from(&look.own_classes);
        Ok(look)
    }
}
