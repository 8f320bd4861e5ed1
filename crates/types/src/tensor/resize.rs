//! The elements of a tensor after its dimensions have changed.

use super::Fill;

/// The sources of the elements of a resized tensor, in row-major order.
pub(super) struct Sources<'a> {
    from: &'a [usize],
    to: &'a [usize],
    repeated: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(from: &'a [usize], to: &'a [usize], fill: Fill) -> Self {
        Self {
            from,
            to,
            repeated: fill == Fill::Repeated,
        }
    }

    /// Calls `take` with runs of elements, as position and number, and with `None` for each element
    /// that must be filled.
    pub(super) fn for_each(&self, mut take: impl FnMut(Option<(usize, usize)>)) {
        let (Some((last_from, outer_from)), Some((last_to, outer_to))) =
            (self.from.split_last(), self.to.split_last())
        else {
            return take(Some((0, 1)));
        };
        let outer: usize = outer_to.iter().product();
        for number in 0..outer {
            let row = self.row(number, outer_from, outer_to);
            let mut done = 0;
            if let Some(row) = row {
                while done < *last_to && (done == 0 || self.repeated) && *last_from > 0 {
                    let count = (*last_from).min(last_to - done);
                    take(Some((row * last_from, count)));
                    done += count;
                }
            }
            (done..*last_to).for_each(|_| take(None));
        }
    }

    /// The row from which the row of this number comes; `None` if it must be filled.
    fn row(&self, mut number: usize, from: &[usize], to: &[usize]) -> Option<usize> {
        let (mut row, mut stride) = (0, 1);
        for (from, to) in from.iter().zip(to).rev() {
            let mut at = number % to;
            number /= to;
            if at >= *from {
                if !self.repeated || *from == 0 {
                    return None;
                }
                at %= from;
            }
            row += at * stride;
            stride *= from;
        }
        Some(row)
    }
}
