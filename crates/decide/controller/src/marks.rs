//! Lists of what has changed, each entry once, for callers that keep copies.

use sextant_types::index::Number;

#[derive(Debug)]
pub(super) struct Marks<I> {
    list: Vec<I>,
    marked: Vec<bool>,
}

// === impl Marks ===

impl<I> Default for Marks<I> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            marked: Vec::new(),
        }
    }
}

impl<I: Number> Marks<I> {
    #[inline]
    pub fn add(&mut self, number: I) {
        let at = number.get() as usize;
        if self.marked.len() <= at {
            self.marked.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.marked[at], true) {
            self.list.push(number);
        }
    }

    /// Replaces the contents of `list` with what was added since the last call.
    pub fn take(&mut self, list: &mut Vec<I>) {
        list.clear();
        std::mem::swap(&mut self.list, list);
        for number in list.iter() {
            self.marked[number.get() as usize] = false;
        }
    }
}
