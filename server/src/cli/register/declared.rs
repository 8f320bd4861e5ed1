//! What a user declares about a model's inputs and outputs.

use std::collections::BTreeMap;

use clap::Args;
use sextant_onnx::adapt::DeclaredSignature;
use sextant_types::{Renames, signature};

/// What a user says of a model's inputs and outputs.
#[derive(Debug, Args)]
pub struct Declaration {
    /// Serve only this output, and score it; as often as needed, then the first is scored [default: all of
    /// them, scored on the one that the metric is meant for].
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// The value of an input in every query, as a sample rate or a threshold: then neither queries nor the validation set
    /// give it. Several numbers are its elements in row-major order, one fills it.
    #[arg(long, value_name = "INPUT=VALUE[,VALUE..]", value_parser = signature::constant)]
    constant: Vec<(String, Vec<f64>)>,
    /// What an input is called here in place of its name in the file, as often as needed [default: an input whose name
    /// the application does not have is taken for the only one left there of the same type and shape]
    #[arg(long, value_name = "OLD=NEW", value_parser = signature::rename)]
    input_name: Vec<(String, String)>,
    /// The same of an output
    #[arg(long, value_name = "OLD=NEW", value_parser = signature::rename)]
    output_name: Vec<(String, String)>,
}

// === impl Declaration ===

impl Declaration {
    /// For whoever reads the model.
    pub fn declared(&self) -> DeclaredSignature {
        DeclaredSignature {
            outputs: self.output.clone(),
            constants: self.constant.iter().cloned().collect::<BTreeMap<_, _>>(),
        }
    }

    /// What inputs and outputs are called in place of their names in the file.
    pub fn renames(&self) -> Renames {
        Renames {
            inputs: self.input_name.iter().cloned().collect(),
            outputs: self.output_name.iter().cloned().collect(),
        }
    }

    /// Whether outputs are chosen.
    pub fn chooses_outputs(&self) -> bool {
        !self.output.is_empty()
    }

    /// The fields of the form, each with its name.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let outputs = self.output.iter().map(|name| ("output", name.clone()));
        let constants = self.constant.iter().map(|(input, values)| {
            let values: Vec<_> = values.iter().map(f64::to_string).collect();
            ("constant", format!("{input}={}", values.join(",")))
        });
        let named = |field, names: &'_ [(String, String)]| {
            let names = names
                .iter()
                .map(move |(old, new)| (field, format!("{old}={new}")));
            names.collect::<Vec<_>>()
        };
        outputs
            .chain(constants)
            .chain(named("input_name", &self.input_name))
            .chain(named("output_name", &self.output_name))
    }
}
