//! Steps that ask one of several targets.
//!
//! A digest of the query's inputs and of the step's name decides which target answers: the same query asks the same
//! target whenever it comes again, and two steps of a query draw independently. A client may say what its queries stick
//! to; its value then replaces the digest of the inputs.

use sextant_types::{Data, NamedTensor, Route, Targets};
use sha2::{Digest as _, Sha256};

/// A target that a step may ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SplitTarget {
    pub route: Route,
    pub targets: Targets,
    /// Its share of the queries, relative to the weights of the others.
    pub weight: f64,
}

/// The seed of the draws of one query.
#[derive(Debug, Clone)]
pub(crate) struct Seed([u8; 32]);

/// Position of the target to which a number from 0 to below 1 falls.
pub(crate) fn drawn(asked: &[SplitTarget], number: f64) -> Option<usize> {
    let all: f64 = asked.iter().map(|it| it.weight).sum();
    let mut left = number * all;
    let found = asked.iter().position(|it| {
        left -= it.weight;
        left < 0.0
    });
    found.or(asked.len().checked_sub(1))
}

// === impl Seed ===

impl Seed {
    /// A seed from the inputs of a query, or from `sticky` if the client sends it.
    pub fn new(sticky: Option<u64>, inputs: &[NamedTensor]) -> Self {
        let mut hash = Sha256::new();
        match sticky {
            Some(number) => hash.update(number.to_le_bytes()),
            None => inputs.iter().for_each(|input| add(&mut hash, input)),
        }
        Self(hash.finalize().into())
    }

    /// The number of a step, from 0 to below 1.
    pub fn number(&self, step: &str) -> f64 {
        let digest = Sha256::new().chain_update(self.0).chain_update(step);
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = digest.finalize().into();
        let bits = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

fn add(hash: &mut Sha256, input: &NamedTensor) {
    let tensor = &input.tensor;
    hash.update(&input.name);
    hash.update([0]);
    for size in tensor.shape() {
        hash.update((*size as u64).to_le_bytes());
    }
    match tensor.data() {
        Data::Plain(bytes) => hash.update(bytes),
        Data::Strings(texts) => {
            for text in texts.iter() {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
        }
    }
}
