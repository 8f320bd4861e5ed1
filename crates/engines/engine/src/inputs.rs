//! The checks that engines make before they run, and the cause of a failed run.

use std::ops::RangeInclusive;

use sextant_types::{
    NamedTensor, Signature,
    convert::{self, Number},
};

use crate::Error;

/// Refuses a model whose answers may follow from integers that an engine with 32-bit arithmetic would cut:
/// `wide_output` is that output.
pub fn check_integers(wide_output: Option<&str>) -> Result<(), Error> {
    match wide_output {
        None => Ok(()),
        Some(output) => Err(Error::Unsupported(format!(
            "output `{output}` may need 64-bit integers, and the engine computes in 32 bits"
        ))),
    }
}

/// Checks that `inputs` are the signature's, in its order, with its types and shapes. Engines call it first, so that
/// their libraries never see other inputs.
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

/// Checks that inputs hold only numbers that the model's tables have: `indices` gives the range of each such input. It
/// is for engines that would answer something, or report the error in words of their own.
pub fn check_indices(
    indices: &[(String, RangeInclusive<i64>)],
    inputs: &[NamedTensor],
) -> Result<(), Error> {
    for (name, range) in indices {
        let named = inputs.iter().filter(|input| input.name == *name);
        let numbers = named.filter_map(|input| convert::numbers(&input.tensor));
        let wrong = numbers.flatten().find_map(|number| match number {
            Number::Integer(it) => (!range_holds(range, it)).then_some(it),
            Number::Float(_) => None,
        });
        if let Some(wrong) = wrong {
            return Err(Error::InvalidInput(format!(
                "input `{name}` has `{wrong}`, the model takes `{}` to `{}`",
                range.start(),
                range.end()
            )));
        }
    }
    Ok(())
}

fn range_holds(range: &RangeInclusive<i64>, number: i128) -> bool {
    i64::try_from(number).is_ok_and(|number| range.contains(&number))
}

/// The error of a failed run. If an input has no elements, the inputs are at fault: operators that need elements report
/// that in words of their own, and only when they run.
pub fn blame_empty(error: Error, inputs: &[NamedTensor]) -> Error {
    let empty = inputs.iter().find(|input| input.tensor.is_empty());
    match (error, empty) {
        (Error::Failed(_), Some(input)) => Error::InvalidInput(format!(
            "input `{}` has no elements, and the model needs some",
            input.name
        )),
        (error, _) => error,
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::Tensor;

    use super::*;

    #[test]
    fn inputs_without_elements_are_at_fault() {
        let tensor = |shape: Vec<usize>| {
            let values = vec![0i64; shape.iter().product()];
            NamedTensor::new(
                "ids",
                Tensor::from_elements(shape, &values).expect("it fits"),
            )
        };
        let failed = || Error::Failed("attention.cc:42 sequence_length > 0 was false".to_owned());
        let [empty, full] = [vec![1, 0], vec![1, 2]].map(tensor);
        let wanted =
            Error::InvalidInput("input `ids` has no elements, and the model needs some".to_owned());
        assert_eq!(
            blame_empty(failed(), &[full.clone(), empty.clone()]).to_string(),
            wanted.to_string()
        );
        assert_eq!(
            blame_empty(failed(), &[full]).to_string(),
            failed().to_string()
        );
        let memory = || Error::MemoryExceeded("too much".to_owned());
        assert_eq!(
            blame_empty(memory(), &[empty]).to_string(),
            memory().to_string()
        );
    }

    #[test]
    fn numbers_are_held_against_every_table() {
        let tokens = |ids: &[i64]| {
            let tensor = Tensor::from_elements(vec![ids.len()], ids).expect("it fits");
            [NamedTensor::new("ids", tensor)]
        };
        let tables = [("ids".to_owned(), -9..=8), ("ids".to_owned(), -4..=3)];
        for (ids, is_right) in [
            (&[0, 3, -4][..], true),
            (&[], true),
            (&[4], false),
            (&[0, -5], false),
        ] {
            assert_eq!(
                check_indices(&tables, &tokens(ids)).is_ok(),
                is_right,
                "{ids:?}"
            );
        }
        let told = check_indices(&tables, &tokens(&[7])).expect_err("it is too large");
        assert!(
            told.to_string()
                .contains("`ids` has `7`, the model takes `-4` to `3`"),
            "{told}"
        );
    }
}
