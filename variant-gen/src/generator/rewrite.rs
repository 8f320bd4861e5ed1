//! Rewrites models' files: in the measuring process if engines are isolated, else here.

use bytes::Bytes;
use sextant_engine::ModelFile;
use sextant_objects::digest_of;

use super::Registration;
use crate::{
    Error,
    isolation::protocol::Action,
    rewriting::{Rewrite, RewriteOutput},
};

impl Registration<'_> {
    /// Rewrites a graph.
    pub(super) async fn rewrite<R: Rewrite>(
        &self,
        graph: &Bytes,
        how: R,
    ) -> Result<RewriteOutput<R::Found>, Error> {
        self.rewrite_file(graph.clone().into(), Vec::new(), how)
            .await
    }

    /// Rewrites a file with its weights and the files beside it.
    pub(super) async fn rewrite_file<R: Rewrite>(
        &self,
        file: ModelFile,
        beside: Vec<Bytes>,
        how: R,
    ) -> Result<RewriteOutput<R::Found>, Error> {
        let Some(isolation) = self.parts.config.isolation.clone() else {
            let rewrite = move |_: &_| how.rewrite(&file, &beside);
            return Ok(self.parts.threads.run(rewrite).await??);
        };
        let mut order = self.order_of_files(Action::Rewrite(how.told()));
        order.artefact = digest_of(&file.graph);
        let mut task = self.task(order, file).await?;
        task.beside = beside;
        let seat = self.seat.clone();
        let rewrite = move |cancel: &_| isolation.rewrite(&seat, task, cancel);
        let made = self.parts.threads.run(rewrite).await??;
        made.map_err(Error::Unable)
    }
}

/// The result and the one file that was made.
pub(super) fn only<T>(made: RewriteOutput<T>) -> (T, Bytes) {
    let file = made.files.into_iter().next();
    (made.found, file.unwrap_or_default())
}
