//! Models that the engine has kept ready: their files are not fetched again.

use std::sync::Mutex;

use sextant_engine::{Capabilities, Error, LoadRequest, LoadedModel, ModelFile};

use super::*;

/// The engine of the tests. It keeps the last file that it was given.
struct KeepingEngine {
    inner: Double,
    kept: Arc<Mutex<KeptFile>>,
}

#[derive(Default)]
struct KeptFile {
    file: Option<ModelFile>,
    /// Whether the kept file is dropped before the next load.
    is_to_go: bool,
    /// For each load: whether it came with a file.
    with_file: Vec<bool>,
}

impl Engine for KeepingEngine {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn has_prepared(&self, _: &Digest, _: Precision) -> bool {
        self.kept.lock().unwrap().file.is_some()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let mut kept = self.kept.lock().unwrap();
        let with_file = !request.model.is_absent();
        kept.with_file.push(with_file);
        if std::mem::take(&mut kept.is_to_go) {
            kept.file = None;
        }
        if with_file {
            kept.file = Some(request.model.clone());
        }
        let model = kept.file.clone();
        let model = model.ok_or_else(|| Error::Failed("its file is needed".to_owned()))?;
        self.inner.load(&LoadRequest {
            model,
            ..request.clone()
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_model_is_fetched_where_the_engine_needs_it() {
    let (record, kept) = (Arc::<Record>::default(), Arc::<Mutex<KeptFile>>::default());
    let engine: Arc<dyn Engine> = Arc::new(KeepingEngine {
        inner: Double {
            device: Kind::Dedicated.device(),
            staged: false,
            is_isolated: false,
            record: Arc::clone(&record),
        },
        kept: Arc::clone(&kept),
    });
    let world = World::on(engine, record, config()).await;
    let variant = world.variant("m-1", "m-1", 200).await;
    let (fetched, kept_back) = ([true].as_slice(), [false].as_slice());
    // The engine dropped the file after the worker had asked, so the worker fetched it.
    let forgotten = [false, true].as_slice();
    for expected in [fetched, kept_back, forgotten, kept_back] {
        {
            let mut state = kept.lock().unwrap();
            state.is_to_go = expected == forgotten;
            state.with_file.clear();
        }
        world.load(&variant).await.unwrap();
        assert_eq!(kept.lock().unwrap().with_file, expected);
        world.infer("m-1", 3, now()).ok();
        world.worker.unload(&variant.id).await.unwrap();
    }
}
