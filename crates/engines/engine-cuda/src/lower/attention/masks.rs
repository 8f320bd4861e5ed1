//! Masks of scores: a tensor that is added to the scores, or a choice between the scores and a number.

use half::{bf16, f16};

use super::{Scores, Search, dense, is_plain};
use crate::{
    lower::{Content, OFFSET_BITS, layout, strided::Sides},
    operation::{
        Activation, Address, Binary, BinaryFunction, Element, Gemm, MAX_RANK, Operand, Operation,
        Select, Sizes, Symbolic,
    },
};

/// A mask that must be made from a choice: it is the number or 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// The position of the operation that chooses among all scores.
    pub index: usize,
    /// Sizes of the mask, as small as those of the condition.
    pub sizes: Sizes,
    pub condition: Operand<Symbolic>,
    pub number: Operand<Symbolic>,
    /// Whether the number is chosen where the condition holds.
    pub where_true: bool,
    pub element: Element,
}

// === impl Choice ===

impl Choice {
    /// The operation that makes the mask at `y`; `zero` is the address of a 0.
    pub fn select(&self, y: Address<Symbolic>, zero: Address<Symbolic>) -> Select<Symbolic> {
        let zero = Operand {
            address: zero,
            strides: [0; MAX_RANK],
        };
        let (a, b) = match self.where_true {
            true => (self.number, zero),
            false => (zero, self.number),
        };
        Select {
            condition: self.condition,
            a,
            b,
            y,
            sizes: self.sizes,
            element: self.element,
        }
    }
}

// === impl Search ===

impl Search<'_> {
    /// Matches scores as one operand of an addition and the mask as the other.
    pub(super) fn masked(
        &self,
        addition: &Binary<Symbolic>,
        own: &Operand<Symbolic>,
        mask: &Operand<Symbolic>,
        index: usize,
    ) -> Option<Scores> {
        let adds =
            addition.function == BinaryFunction::Add && addition.activation == Activation::None;
        let (before, product) = self.product(own.address, addition.sizes.count())?;
        let sides = Sides {
            sizes: &addition.sizes,
            from: &own.strides,
            to: mask,
        };
        let mask = dense(own.address, [product.batch, product.m, product.n]).through(&sides)?;
        adds.then_some(Scores {
            product,
            mask: Some(mask),
            choice: None,
            taken: vec![before, index],
        })
    }

    /// Matches scores as one operand of a choice and, as the other, a number so low that a score does not count beside
    /// it: added to a score, it replaces the score.
    pub(super) fn chosen(
        &self,
        select: &Select<Symbolic>,
        where_true: bool,
        index: usize,
    ) -> Option<Scores> {
        let (own, number) = match where_true {
            true => (&select.b, &select.a),
            false => (&select.a, &select.b),
        };
        let lowest = match select.element {
            Element::F16 => f16::MIN.to_f32(),
            _ => -1e30,
        };
        let low = self.number(select.element, number)? <= lowest;
        let (before, product) = self.product(own.address, select.sizes.count())?;
        let mut choice = Choice {
            index,
            sizes: select.sizes,
            condition: select.condition,
            number: *number,
            where_true,
            element: select.element,
        };
        // The mask is as small as the condition: where the condition has one value for a whole dimension, so has the
        // mask.
        for dim in 0..choice.sizes.rank {
            if select.condition.strides[dim] == 0 {
                choice.sizes.sizes[dim] = 1;
            }
        }
        let mut mask = Operand {
            address: Address::new(0),
            strides: [0; MAX_RANK],
        };
        let strides = layout::strides(choice.sizes.dims());
        for (dim, stride) in strides.into_iter().enumerate() {
            if choice.sizes.sizes[dim] > 1 {
                mask.strides[dim] = stride;
            }
        }
        let sides = Sides {
            sizes: &select.sizes,
            from: &own.strides,
            to: &mask,
        };
        let mask = dense(own.address, [product.batch, product.m, product.n]).through(&sides)?;
        low.then_some(Scores {
            product,
            mask: Some(mask),
            choice: Some(choice),
            taken: vec![before],
        })
    }

    /// The product that alone gives `count` scores, if nothing else uses them.
    fn product(&self, scores: Address<Symbolic>, count: u64) -> Option<(usize, Gemm<Symbolic>)> {
        let index = self.uses.only_producer(scores)?;
        let Operation::Gemm(product) = self.draft.operations[index] else {
            return None;
        };
        let fits = is_plain(&product)
            && product.c.address == scores
            && product.batch * product.m * product.n == count;
        fits.then_some((index, product))
    }

    /// The number that fills an operand, if it is known before a batch comes.
    pub(super) fn number(&self, element: Element, operand: &Operand<Symbolic>) -> Option<f32> {
        if operand.strides.iter().any(|stride| *stride != 0) {
            return None;
        }
        let at = operand.address.get();
        let buffer = &self.draft.buffers[(at >> OFFSET_BITS) as usize];
        let bytes = match buffer.content {
            Content::Weight(index) if at.is_multiple_of(1 << OFFSET_BITS) => {
                self.weights.number(index)?
            }
            Content::Inputs => {
                let mut constants = self.draft.constants.iter();
                &constants.find(|(offset, _)| *offset == at)?.1
            }
            _ => return None,
        };
        match (element, bytes.get(..2)?) {
            (Element::F16, &[low, high]) => Some(f16::from_le_bytes([low, high]).to_f32()),
            (Element::Bf16, &[low, high]) => Some(bf16::from_le_bytes([low, high]).to_f32()),
            _ => None,
        }
    }
}
