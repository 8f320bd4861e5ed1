//! The configurations of a model that are tried.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sextant_engine::Capabilities;
use sextant_types::{DataType, EngineName, Optimization, Precision, Signature, VariantSpec};

/// Batch sizes that are measured, and the maximum batches of the variants.
pub const BATCHES: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What is loaded and measured as one: a variant without its maximum batch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration {
    /// Which engine runs it.
    pub engine: EngineName,
    /// Number format.
    pub precision: Precision,
    /// Graph optimisation.
    pub optimization: Optimization,
    /// Intra-op threads, at least 1.
    pub threads: u16,
}

impl Configuration {
    /// `ort-fp32-all-t1`.
    pub fn name(&self) -> String {
        let Self {
            engine,
            precision,
            optimization,
            threads,
        } = self;
        let (precision, optimization) = (precision.name(), optimization.name());
        format!("{engine}-{precision}-{optimization}-t{threads}")
    }

    /// The variant of this configuration with a maximum batch.
    pub fn variant(&self, max_batch: u16) -> VariantSpec {
        VariantSpec {
            engine: self.engine.clone(),
            precision: self.precision,
            optimization: self.optimization,
            threads: self.threads,
            max_batch,
        }
    }
}

/// All configurations of `engine` with `cores` cores that make sense, in a fixed order.
pub fn enumerate(engine: &str, capabilities: &Capabilities, cores: u16) -> Vec<Configuration> {
    let threads = thread_counts(capabilities.threads, cores);
    let mut configurations = Vec::new();
    for precision in unique(&capabilities.precisions) {
        for optimization in unique(&capabilities.optimizations) {
            // Pairs of quantisation and dequantisation become 8-bit kernels by fusion; left as they
            // are, they only add work to the original.
            if (precision, optimization) == (Precision::Int8Static, Optimization::Basic) {
                continue;
            }
            // Optimisation does not change the large matrices that these precisions are about.
            let by_weights = matches!(precision, Precision::Int8Weights | Precision::Int4Weights);
            if by_weights && optimization == Optimization::Basic {
                continue;
            }
            for threads in &threads {
                configurations.push(Configuration {
                    engine: EngineName(engine.to_owned()),
                    precision,
                    optimization,
                    threads: *threads,
                });
            }
        }
    }
    configurations
}

/// Keeps only one thread and the most threads of each engine, and its fullest optimisation.
pub fn keep_extremes<T>(configurations: &mut Vec<(T, Configuration)>) {
    let mut most: BTreeMap<EngineName, (Optimization, u16)> = BTreeMap::new();
    for (_, of) in configurations.iter() {
        let most = most
            .entry(of.engine.clone())
            .or_insert((Optimization::Basic, 1));
        *most = (most.0.max(of.optimization), most.1.max(of.threads));
    }
    configurations.retain(|(_, of)| {
        let (optimization, threads) = most[&of.engine];
        of.optimization == optimization && (of.threads == 1 || of.threads == threads)
    });
}

/// 1, 2, 4, .. up to the machine's cores; only 1 if threads make no difference.
pub fn thread_counts(threads: bool, cores: u16) -> Vec<u16> {
    if !threads {
        return vec![1];
    }
    std::iter::successors(Some(1u16), |threads| threads.checked_mul(2))
        .take_while(|threads| *threads <= cores.max(1))
        .collect()
}

/// Batch sizes to measure: 1, 2, 4 .. 64, only 1 for a model without a batch dimension.
pub fn batch_sizes(batched: bool, largest: u16) -> Vec<u16> {
    let largest = if batched { largest.max(1) } else { 1 };
    BATCHES
        .into_iter()
        .take_while(|batch| *batch <= largest)
        .collect()
}

/// The first input or output type that an engine does not take.
pub fn unsupported_type(capabilities: &Capabilities, signature: &Signature) -> Option<DataType> {
    signature
        .inputs
        .iter()
        .chain(&signature.outputs)
        .map(|spec| spec.data_type)
        .find(|data_type| !capabilities.data_types.contains(data_type))
}

fn unique<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut seen = BTreeSet::new();
    values
        .iter()
        .copied()
        .filter(|value| seen.insert(*value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(threads: bool) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32, Precision::Int8Dynamic, Precision::Fp32],
            optimizations: vec![Optimization::Basic, Optimization::All],
            threads,
            data_types: vec![DataType::Fp32],
        }
    }

    #[test]
    fn every_combination_once() {
        let names: Vec<String> = enumerate("ort", &capabilities(true), 3)
            .iter()
            .map(Configuration::name)
            .collect();
        assert_eq!(
            names,
            [
                "ort-fp32-basic-t1",
                "ort-fp32-basic-t2",
                "ort-fp32-all-t1",
                "ort-fp32-all-t2",
                "ort-int8d-basic-t1",
                "ort-int8d-basic-t2",
                "ort-int8d-all-t1",
                "ort-int8d-all-t2",
            ]
        );
        assert_eq!(enumerate("rten", &capabilities(false), 64).len(), 4);
    }

    #[test]
    fn static_quantisation_is_never_left_unfused() {
        let mut capabilities = capabilities(false);
        capabilities.precisions.push(Precision::Int8Static);
        let names: Vec<String> = enumerate("ort", &capabilities, 1)
            .iter()
            .map(Configuration::name)
            .collect();
        assert!(names.contains(&"ort-int8s-all-t1".to_owned()));
        assert!(!names.contains(&"ort-int8s-basic-t1".to_owned()));
    }

    #[test]
    fn one_thread_and_all_of_them_are_what_is_tried_quickly() {
        let mut all: Vec<_> = enumerate("ort", &capabilities(true), 8)
            .into_iter()
            .map(|configuration| ((), configuration))
            .collect();
        keep_extremes(&mut all);
        let names: Vec<String> = all.iter().map(|(_, of)| of.name()).collect();
        assert_eq!(
            names,
            [
                "ort-fp32-all-t1",
                "ort-fp32-all-t8",
                "ort-int8d-all-t1",
                "ort-int8d-all-t8",
            ]
        );
    }

    #[test]
    fn threads_double_up_to_the_cores() {
        assert_eq!(thread_counts(true, 6), [1, 2, 4]);
        assert_eq!(thread_counts(true, 0), [1]);
        assert_eq!(thread_counts(true, u16::MAX).len(), 16);
        assert_eq!(thread_counts(false, 8), [1]);
    }

    #[test]
    fn one_row_without_a_batch_dimension() {
        assert_eq!(batch_sizes(false, 64), [1]);
        assert_eq!(batch_sizes(true, 64), BATCHES);
        assert_eq!(batch_sizes(true, 20), [1, 2, 4, 8, 16]);
    }
}
