//! The provider of pools that KEDA scales.

use async_trait::async_trait;
use sextant_provider::{Error, Machine, MachineId, Pool, Provider};

/// The provider of pools that KEDA scales. It orders nothing: KEDA asks how many workers are desired. So it has no
/// machines, starts none and ends none, and the workers that KEDA has started count as not its own. With this provider
/// a pool is managed, and the autoscaler decides how many workers are desired.
#[derive(Debug, Clone, Copy, Default)]
pub struct KedaProvider;

#[async_trait]
impl Provider for KedaProvider {
    fn name(&self) -> &'static str {
        "keda"
    }

    async fn list(&self, _pool: &Pool) -> Result<Vec<Machine>, Error> {
        Ok(Vec::new())
    }

    async fn grow(&self, _pool: &Pool, _count: u32) -> Result<(), Error> {
        Ok(())
    }

    async fn end(&self, _pool: &Pool, _machines: &[MachineId]) -> Result<(), Error> {
        Ok(())
    }
}
