//! Element by element.

use sextant_engine::Error;

use super::{
    Memory, fault,
    functions::{activate, binary_float, binary_integer, compare, unary_float, unary_integer},
    values::{
        float, floats, from_float, from_integer, integer, integers, store_floats, store_integers,
        store_strided, strided,
    },
};
use crate::operation::{Activation, Binary, Copy, Element, Fill, Select, Unary};

pub(super) fn unary(it: &Unary, memory: &mut Memory) -> Result<(), Error> {
    if it.element.is_float() {
        let mut values = floats(memory, it.x, it.count, it.element)?;
        for value in &mut values {
            *value = unary_float(it.function, *value)
                .ok_or_else(|| fault(&format!("{:?} of floats", it.function)))?;
        }
        return store_floats(memory, it.y, it.element, &values);
    }
    let mut values = integers(memory, it.x, it.count, it.element)?;
    for value in &mut values {
        *value = unary_integer(it.function, *value)
            .ok_or_else(|| fault(&format!("{:?} of integers", it.function)))?;
    }
    store_integers(memory, it.y, it.element, &values)
}

pub(super) fn binary(it: &Binary, memory: &mut Memory) -> Result<(), Error> {
    let a = strided(memory, &it.a, &it.sizes, it.element)?;
    let b = strided(memory, &it.b, &it.sizes, it.element)?;
    let pairs = a.into_iter().zip(b);
    let wrong = || fault(&format!("{:?} of {:?}", it.function, it.element));
    let bytes: Option<Vec<Vec<u8>>> = if it.element.is_float() {
        let compute = |(a, b)| {
            let (a, b) = (float(it.element, a), float(it.element, b));
            if it.function.is_comparison() {
                return Some(vec![u8::from(compare(it.function, &a, &b))]);
            }
            let value = activate(it.activation, binary_float(it.function, a, b)?);
            Some(from_float(it.element, value))
        };
        pairs.map(compute).collect()
    } else {
        if it.activation != Activation::None {
            return Err(wrong());
        }
        let compute = |(a, b)| {
            let (a, b) = (integer(it.element, a), integer(it.element, b));
            if it.function.is_comparison() {
                return Some(vec![u8::from(compare(it.function, &a, &b))]);
            }
            Some(from_integer(it.element, binary_integer(it.function, a, b)?))
        };
        pairs.map(compute).collect()
    };
    memory.write(it.y, &bytes.ok_or_else(wrong)?.concat())
}

pub(super) fn select(it: &Select, memory: &mut Memory) -> Result<(), Error> {
    let condition = strided(memory, &it.condition, &it.sizes, Element::Bool)?;
    let a = strided(memory, &it.a, &it.sizes, it.element)?;
    let b = strided(memory, &it.b, &it.sizes, it.element)?;
    let choose = |((condition, a), b): ((&[u8], _), _)| if condition[0] != 0 { a } else { b };
    let chosen: Vec<&[u8]> = condition.into_iter().zip(a).zip(b).map(choose).collect();
    let bytes = chosen.concat();
    memory.write(it.y, &bytes)
}

pub(super) fn copy(it: &Copy, memory: &mut Memory) -> Result<(), Error> {
    let convert = |bytes: &[u8]| {
        if it.x_element == it.y_element {
            bytes.to_vec()
        } else if it.x_element.is_float() {
            from_float(it.y_element, float(it.x_element, bytes))
        } else {
            from_integer(it.y_element, integer(it.x_element, bytes))
        }
    };
    let values = strided(memory, &it.x, &it.sizes, it.x_element)?;
    let values: Vec<Vec<u8>> = values.into_iter().map(convert).collect();
    store_strided(memory, &it.y, &it.sizes, it.y_element, values)
}

pub(super) fn fill(it: &Fill, memory: &mut Memory) -> Result<(), Error> {
    let value = if it.element.is_float() {
        from_float(it.element, it.value as f32)
    } else {
        from_integer(it.element, it.value as i64)
    };
    let values = vec![value; it.sizes.count() as usize];
    store_strided(memory, &it.y, &it.sizes, it.element, values)
}
