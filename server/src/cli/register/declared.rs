//! What a user declares about a model's inputs and outputs.

use std::collections::BTreeMap;

use clap::Args;
use sextant_onnx::adapt::DeclaredSignature;
use sextant_types::{Renames, signature};

/// What a user says of a model's inputs and outputs.
#[derive(Debug, Args)]
pub struct Declaration {
    /// Serve only this output, and score it; may be repeated, then the first is scored [default: all outputs; the one
    /// that suits the metric is scored].
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// The value of an input in every query, such as a sample rate or a threshold. Queries and the validation set
    /// then do not have this input. Several numbers are the elements of the input in row-major order; one number
    /// fills it.
    #[arg(long, value_name = "INPUT=VALUE[,VALUE..]", value_parser = signature::constant)]
    constant: Vec<(String, Vec<f64>)>,
    /// A new name for an input of the file; may be repeated [default: if the application has no input of that name,
    /// the input is matched with the only remaining one of the same type and shape]
    #[arg(long, value_name = "OLD=NEW", value_parser = signature::rename)]
    input_name: Vec<(String, String)>,
    /// A new name for an output, like `--input-name`
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
