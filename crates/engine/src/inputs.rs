//! The check that every engine makes before it runs.

use sextant_types::{NamedTensor, Signature};

use crate::Error;

/// Refuses a model that may answer in integers which an engine that computes in 32 bits would cut: `wide_output` is the
/// output.
pub fn check_integers(wide_output: Option<&str>) -> Result<(), Error> {
    match wide_output {
        None => Ok(()),
        Some(output) => Err(Error::Unsupported(format!(
            "output `{output}` may need 64-bit integers, and the engine computes in 32 bits"
        ))),
    }
}

/// Whether `inputs` are the signature's, in its order, of its types and shapes. Engines call it
/// first, so that their libraries never see anything else.
pub fn check_inputs(signature: &Signature, inputs: &[NamedTensor]) -> Result<(), Error> {
    let (given, wanted) = (inputs.len(), signature.inputs.len());
    if given != wanted {
        return Err(Error::InvalidInput(format!(
            "{given} inputs are given, the model takes {wanted}"
        )));
    }
    for (input, spec) in inputs.iter().zip(&signature.inputs) {
        let (tensor, name) = (&input.tensor, &spec.name);
        if input.name != *name {
            let given: String = input.name.chars().take(64).collect();
            return Err(Error::InvalidInput(format!(
                "input `{given}` is given where the model takes `{name}`"
            )));
        }
        if tensor.data_type() != spec.data_type || !spec.accepts(tensor.shape()) {
            return Err(Error::InvalidInput(format!(
                "input `{name}` is {} {:?}, the model takes {} {}",
                tensor.data_type(),
                tensor.shape(),
                spec.data_type,
                spec.shape_text()
            )));
        }
    }
    Ok(())
}
