//! What has changed, each once, for shells that keep copies.

#[derive(Debug, Default)]
pub(super) struct Marks {
    list: Vec<u32>,
    marked: Vec<bool>,
}

// === impl Marks ===

impl Marks {
    #[inline]
    pub fn add(&mut self, at: u32) {
        if self.marked.len() <= at as usize {
            self.marked.resize(at as usize + 1, false);
        }
        if !std::mem::replace(&mut self.marked[at as usize], true) {
            self.list.push(at);
        }
    }

    /// What was added since the last call, in place of what is in `list`.
    pub fn take(&mut self, list: &mut Vec<u32>) {
        list.clear();
        std::mem::swap(&mut self.list, list);
        for at in list.iter() {
            self.marked[*at as usize] = false;
        }
    }
}
