//! The launch of attention.

use sextant_engine::Error;

use super::{GRID, Launch, Parameters, suffix, unsupported};
use crate::operation::{Attention, Element, Rows};

/// Depths for which there are kernels. A depth in between is computed as the next larger one.
const DEPTHS: [u64; 3] = [32, 64, 128];
/// Queries of a block.
const QUERIES: u64 = 64;
const THREADS: u32 = 128;

pub(super) fn attention(it: &Attention) -> Result<Option<Launch>, Error> {
    let heads = &it.heads;
    let depth = DEPTHS.into_iter().find(|depth| heads.depth <= *depth);
    let fits = matches!(it.element, Element::F16 | Element::Bf16)
        && heads.depth.is_multiple_of(8)
        && [&it.q, &it.k, &it.v, &it.y]
            .into_iter()
            .all(Rows::is_aligned);
    let Some(depth) = depth.filter(|_| fits) else {
        let what = format!("attention of depth {} as it lies", heads.depth);
        return Err(unsupported(&what, it.element));
    };
    if heads.of_queries().count() == 0 {
        return Ok(None);
    }
    let rows = [&it.q, &it.k, &it.v, &it.y];
    let mask = it.mask.map(|mask| mask.strides).unwrap_or_default();
    let steps = rows.iter().flat_map(|rows| rows.strides);
    let steps = steps.chain(mask[..4].iter().copied());
    let parameters = Parameters::default()
        .address(it.q.address)
        .address(it.k.address)
        .address(it.v.address)
        .address(it.y.address)
        .optional(it.mask.map(|mask| mask.address));
    let parameters = steps.fold(parameters, |all, step| all.u64(step.cast_unsigned()));
    let parameters = parameters
        .u64s(&[
            heads.batch,
            heads.heads,
            heads.queries,
            heads.keys,
            heads.depth,
        ])
        .f32(it.alpha);
    let blocks = heads.queries.div_ceil(QUERIES) * heads.heads * heads.batch;
    Ok(Some(Launch {
        kernel: format!("attention_{}_{depth}", suffix(it.element)),
        grid: blocks.clamp(1, GRID) as u32,
        block: THREADS,
        parameters,
    }))
}
