//! A model beside those that its application has: the same names, dimensions, classes and types of labels.

use sextant_onnx::{
    adapt::Plain,
    fit::{self, Named, Vocabulary},
    inspect,
};
use sextant_types::Signature;

use super::{Registration, sets::Wrapped};
use crate::{Error, validation::Scored};

impl Registration<'_> {
    /// The file under the stated names and those of its application, and the validation set for it, where that is one that
    /// calls inputs otherwise.
    pub(super) async fn fit_names(
        &mut self,
        plain: Plain,
        application: Option<Signature>,
    ) -> Result<(Named, Option<Wrapped>), Error> {
        let (stated, chosen) = (self.model.names.clone(), self.model.outputs.clone());
        let fit = move |_: &_| fit::names(plain, &stated, &chosen, application.as_ref());
        let named = self.parts.threads.run(fit).await??;
        if named.inputs.is_empty() {
            return Ok((named, None));
        }
        let names = named.inputs.clone();
        let set = self.wrap(|front| front.named(names), None).await?;
        Ok((named, Some(set)))
    }

    /// The columns of the scored output in the application's order, and labels of its type.
    pub(super) async fn fit_classes(
        &mut self,
        mut plain: Plain,
        application: Option<Signature>,
    ) -> Result<Plain, Error> {
        let signature = inspect(&plain.model)?.signature;
        let scored = match self.model.outputs.is_empty() {
            true => Scored::by(self.application.metric, &signature),
            false => Scored::default(),
        };
        let Some(output) = signature.outputs.get(scored.output) else {
            return Ok(plain);
        };
        let known = match application {
            Some(_) => self.parts.registry.classes_before(&self.model).await?,
            None => Vec::new(),
        };
        let (output, stated) = (output.name.clone(), self.model.classes.clone());
        let fit = move |_: &_| {
            if let Some(application) = &application {
                fit::relax(&mut plain, application)?;
            }
            let vocabulary = Vocabulary {
                output: &output,
                stated: &stated,
                known: &known,
                application: application.as_ref(),
            };
            fit::classes(plain, vocabulary)
        };
        let (plain, own) = self.parts.threads.run(fit).await??;
        self.own_classes = own;
        Ok(plain)
    }
}
